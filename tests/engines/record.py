"""Records what an engine says, for the tests that start none: `python tests/engines/record.py N`.

N is a build (see `autospec/demo/build_engine.py --version`) or `own`, the environment's. The
files go to tests/data/engines/BUILD; paths, process numbers and times of this machine are in them
as they came.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from autospec import paths
from autospec.demo.assets import DemoModels, ensure_models
from autospec.demo.build_engine import beside
from autospec.engine.arguments import bench_argv, server_argv
from autospec.engine.environment import child_environment
from autospec.engine.find import Engine, find_engine, read_engine
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.engine.probe import probe
from autospec.engine.server import Server

DATA = Path(__file__).parents[1] / "data/engines"
PROMPT = "List the numbers from one to ten, one a line."
TOKENS = 40
_OF_ROUNDS = re.compile(r"draft candidate +0|max possible draft|#draft=|add accepted|n_draft")


def launch_of(models: DemoModels) -> Launch:
    extra = ("--threads", "1")
    return Launch("m", models.draft, draft=models.draft_one_dropped, context=1024, extra=extra)


async def served(engine: Engine, models: DemoModels) -> dict[str, str]:
    """What the pages, one completion and the log said."""
    environment, _ = child_environment(os.environ, {})
    speculation = Speculation(("draft-simple",), 4, 0, 0.0)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="as-") as folder:
        endpoint = Endpoint(socket=Path(folder) / "s.sock")
        argv = [*server_argv(engine, launch_of(models), speculation, endpoint), "-lv", "5"]
        async with await Server.start(argv, environment, endpoint, lines.append) as server:
            await server.ready(120)
            told = {"completion.json": (await server.chat(PROMPT, tokens=TOKENS, within=120)).body}
            for page, name in (
                ("/metrics", "metrics.txt"), ("/slots", "slots.json"), ("/props", "props.json"),
            ):  # fmt: skip
                told[name] = (await server.client.get(page, timeout=30)).text
    told["rounds.log"] = "".join(f"{line}\n" for line in lines if _OF_ROUNDS.search(line))
    told["start.log"] = "".join(f"{line}\n" for line in lines[:60])
    return told


def benched(engine: Engine, models: DemoModels) -> str:
    argv = bench_argv(engine, launch_of(models), which="target")
    argv += ["-c", "512", "-npp", "0,64", "-ntg", "4", "-npl", "1,1,2,4", "-pps", "-kvu"]
    argv += ["--output-format", "jsonl"]
    environment, _ = child_environment(os.environ, {})
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=300, check=True, env=environment
    )
    return done.stdout


def main(build: str) -> None:
    models = ensure_models(lambda *_: None, paths.cache() / "models")
    own = build == "own"
    engine = find_engine() if own else read_engine(beside(build) / "llama-server", "a recording")
    assert engine.batched_bench is not None
    said = {
        "help.txt": probe(engine.server, ["--help"]).stdout,
        "version.txt": probe(engine.server, ["--version"]).stdout,
        "devices.txt": probe(engine.server, ["--list-devices"]).stdout,
        "bench-help.txt": probe(engine.batched_bench, ["--help"]).stdout,
        "bench.jsonl": benched(engine, models),
        **asyncio.run(served(engine, models)),
    }
    folder = DATA / ("11434" if own else build)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in said.items():
        (folder / name).write_text(text.replace(str(Path.home()), "/home/user"))


if __name__ == "__main__":
    main(sys.argv[1])
