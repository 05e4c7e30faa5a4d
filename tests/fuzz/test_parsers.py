"""Whatever a program or a file says: plain data or a refusal that shows what was said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import Target, hostile, kept_within_bounds, seconds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec.config.faults import ConfigFaults
from autospec.config.load import parse as parse_config
from autospec.engine.bench import parse_rows
from autospec.engine.failures import explain_exit, speculation_fault
from autospec.engine.find import parse_version
from autospec.engine.help_text import parse_help
from autospec.engine.metrics import difference, parse_metrics
from autospec.engine.observe import parse_props, parse_slots, parse_timings
from autospec.engine.placement import parse_fitted
from autospec.engine.round_log import RoundReader
from autospec.errors import ConfigError, EngineOutputError
from autospec.hardware.gpu import parse_list_devices

pytestmark = pytest.mark.fuzz

DATA = Path(__file__).parents[1] / "data"


def recorded(pattern: str) -> tuple[str, ...]:
    found = tuple(path.read_text() for path in sorted(DATA.glob(pattern)))
    assert found, pattern
    return found


def lines_of(text: str) -> list[str]:
    return text.splitlines()


def rounds(text: str) -> RoundReader:
    reader = RoundReader()
    for line in lines_of(text):
        reader.take(line)
    return reader


def sound_rounds(reader: RoundReader) -> bool:
    return all(
        0 <= one.accepted <= len(one.p) and all(0 <= p <= 1 for p in one.p) for one in reader.rounds
    )


SLOTS = json.dumps(
    [
        {"id": 0, "n_ctx": 512, "speculative": True, "is_processing": False},
        {
            "id": 1, "n_ctx": 512, "speculative": True, "is_processing": True,
            "n_prompt_tokens_processed": 4, "n_prompt_tokens_cache": 0,
            "next_token": [{"n_remain": 176, "n_decoded": 24}],
        },
    ]
)  # fmt: skip
PROPS = json.dumps(
    {
        "total_slots": 2, "model_path": "/m.gguf", "build_info": "b11434-abc",
        "default_generation_settings": {"n_ctx": 512},
    }
)  # fmt: skip
TIMINGS = json.dumps(
    {
        "choices": [{"message": {"content": "x"}}],
        "timings": {
            "cache_n": 0, "prompt_n": 33, "prompt_ms": 644.3, "predicted_n": 40,
            "predicted_ms": 19771.9, "draft_n": 95, "draft_n_accepted": 13,
        },
    }
)  # fmt: skip
METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 66
llamacpp:tokens_predicted_total 80
llamacpp:tokens_predicted_seconds_total 6.91161
llamacpp:spec_decode_num_drafts_total 9
llamacpp:spec_decode_num_draft_tokens_total 40
llamacpp:spec_decode_num_accepted_tokens_total 12
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 7
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 5
llamacpp:requests_processing 1
"""
DEVICES = """\
load_backend: loaded CUDA backend
Available devices:
  CUDA0: NVIDIA GeForce RTX 3060 (12044 MiB, 11871 MiB free)
  Vulkan0: AMD Radeon (RADV) (8192 MiB, 8000 MiB free)
"""
ROUNDS = """\
0.01.239.430 D slot get_n_draft_: id  0 | task 0 | max possible draft: 58
0.01.248.119 D spec        draft:  - seq_id 0, draft candidate   0, pos   0:   1517 (   0.748) ' f'
0.01.256.075 D spec        draft:  - seq_id 0, draft candidate   0, pos   1:    868 (   0.958) ' s'
0.01.304.430 D slot handle_last_: id  0 | task 0 | generate_draft: id=378, #draft=2, pos_next=11
0.01.484.430 D slot   operator(): id  0 | add accepted tokens: sampled=354, ids.size=2, n_draft=2
"""
LOGS = """\
0.00.100.000 E common_speculative_are_compatible: draft model vocab must match target model
0.00.100.001 E srv    load_model: failed to load draft model, '/d.gguf'
CUDA error: out of memory
terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc
/src/ggml.c:12: GGML_ASSERT(ctx != NULL) failed
error: invalid argument: --draft-max
error while loading shared libraries: libcuda.so.1: cannot open shared object file
"""
CONFIG = """\
[server]
listen = "127.0.0.1:8080"
[engine]
start_timeout = "2m"
environment = { A = "1" }
[models.chat]
hf = "a/b"
context = 16384
slots = 2
extra = ["-ngl", "99"]
n_max = 8
[retune]
after = "1m"
"""
BENCH = recorded("batched_bench_pps_not_unified.jsonl")

TARGETS: dict[str, Target] = {
    "help": Target(
        parse_help,
        recorded("help/*.txt"),
        shown=lambda flags: [
            said for flag in flags.values() for said in (flag.removed, flag.default, *flag.names)
        ],
    ),
    "version": Target(
        parse_version,
        ("version: 9893 (abc)\nbuilt with GNU\n", "version: 0.1.1-dev (build 10480, commit a)\n"),
        check=lambda version: 0 < len(version) <= 200,
        shown=lambda version: [version],
    ),
    "list-devices": Target(
        parse_list_devices,
        (DEVICES,),
        shown=lambda devices: [
            text for one in devices or () for text in (one.name, one.description)
        ],
    ),
    "batched-bench": Target(
        lambda text: list(parse_rows(lines_of(text))),
        (BENCH[0][:1200],),
        (EngineOutputError,),
        lambda rows: all(0 < row.step_ms < float("inf") for row in rows),
    ),
    "metrics": Target(
        parse_metrics,
        (METRICS,),
        (EngineOutputError,),
        lambda seen: difference(seen, seen) is None or difference(seen, seen).predicted == 0,
    ),
    "slots": Target(parse_slots, (SLOTS,), (EngineOutputError,)),
    "props": Target(parse_props, (PROPS,), (EngineOutputError,)),
    "timings": Target(parse_timings, (TIMINGS,), (EngineOutputError,)),
    "fit-params": Target(parse_fitted, ("-c 4096 -ngl 30 -ts 1,2\n",), (EngineOutputError,)),
    "rounds in the log": Target(rounds, (ROUNDS,), check=sound_rounds),
    "why it died": Target(
        lambda text: explain_exit(1, lines_of(text)[-60:]),
        (LOGS,),
        check=lambda cause: 0 < len(cause.sentence) < 500,
        shown=lambda cause: [cause.sentence],
    ),
    "why it does not speculate": Target(
        lambda text: speculation_fault(lines_of(text)), (LOGS,), shown=lambda said: [said]
    ),
    "configuration": Target(
        lambda text: parse_config(text, path=Path("/autospec.toml")),
        (CONFIG,),
        (ConfigFaults, ConfigError),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_input_gives_sound_data_or_a_refusal_in_bounded_memory(
    name: str, data: st.DataObject
):
    target = TARGETS[name]
    kept_within_bounds(target, data.draw(hostile(target.seeds)))


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_gives_sound_data_or_a_refusal(name: str, text: str):
    kept_within_bounds(TARGETS[name], text)


UNITS: dict[str, Callable[[int], str]] = {
    "one word": lambda n: "a" * n,
    "digits": lambda n: "7" * n,
    "spaces": lambda n: " " * n,
    "dashes": lambda n: "-" * n,
    "opening": lambda n: "[" * n,
    "objects": lambda n: '{"a":' * (n // 5),
    "quotes": lambda n: '"' * n,
    "short lines": lambda n: "\n" * n,
    "names": lambda n: "-a, " * (n // 4),
    "brackets": lambda n: "--x [" + "<[" * (n // 2),
    "an endless device": lambda n: "Available devices:\n  a: " + "(1 MiB, " * (n // 8),
    "an endless error": lambda n: "failed to allocate " * (n // 19),
    "an endless number": lambda n: "llamacpp:tokens_predicted_total " + "1" * n + "\n",
    "an endless label": lambda n: "llamacpp:x{" + 'a="b",' * (n // 6) + "\n",
    "an endless clock": lambda n: "0." * (n // 2),
    "an endless key": lambda n: "a." * (n // 2) + "a = 1",
}
SMALL, LARGE = 1 << 13, 1 << 16
LINEAR_AND_SOME = 4.0
"""How much more than its share the larger input may take; a square would take 8 times."""
RESOLUTION = 0.02
"""Seconds under which times say nothing."""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_input_and_not_with_its_square(name: str, unit: str):
    target, make = TARGETS[name], UNITS[unit]
    small, large = (seconds(target, make(size)) for size in (SMALL, LARGE))
    assert large <= LINEAR_AND_SOME * LARGE / SMALL * max(small, RESOLUTION / 8), (small, large)
