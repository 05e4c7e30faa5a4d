"""Engines made of recorded help texts, for tests that start none."""

from __future__ import annotations

from pathlib import Path

from autospec.engine.capabilities import capabilities
from autospec.engine.find import Engine
from autospec.engine.help_text import parse_help

HELP = Path(__file__).parents[1] / "data/help"


def recorded(build: str) -> Engine:
    bench = parse_help((HELP / "batched-bench-11434.txt").read_text())
    folder = Path("/opt/llama")
    return Engine(
        folder=folder,
        server=folder / "llama-server",
        batched_bench=folder / "llama-batched-bench",
        bench=None,
        identity="0" * 64,
        version=build,
        build_date=None,
        shared=True,
        capabilities=capabilities(parse_help((HELP / f"{build}.txt").read_text())),
        bench_flags=frozenset(
            name for name, flag in bench.items() if "sampling" not in flag.section
        ),
        source="a recording",
    )
