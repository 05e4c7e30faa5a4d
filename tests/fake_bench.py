"""A stand-in for llama-batched-bench: rows from a formula, with the real one's traps.

The fixture `fake_engine` makes a program `llama-batched-bench` that runs `main`; its script is
`llama-batched-bench.json` beside it. Keys, all optional:

    step_ms     [a, b]: a step of batch B at depth 0 takes a + b·B ms (default [40, 5])
    jag         {"9": 0.8, ...}: factor on the time of a batch
    warm_up     factor on the first row (default 1.7)
    spread      relative noise of each row, repeatable (default 0)
    half_line   after so many rows the next one is cut in the middle and the program exits 0
    exit        {"after": rows, "code": N}; -N dies of signal N
    row_seconds real time that a row takes (default 0)

What the real one does as well: combinations that do not fit `-c` (rounded up to 256) are
skipped with exit 0, depth 0 prints `"speed_pp": -nan`, `-ntg 0` prints `"speed_tg": -nan`,
blank lines end the output.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HELP = """\
-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-c,    --ctx-size N                     size of the context (default: 0)
-m,    --model FNAME                    model file
-t,    --threads N                      CPU threads (default: -1)
-npp   n0,n1,...                        numbers of prompt tokens
-ntg   n0,n1,...                        numbers of generated tokens
-npl   n0,n1,...                        numbers of parallel prompts
-pps                                    the prompt is shared (default: false)
-kvu,  --kv-unified                     one KV buffer for all sequences (default: disabled)
--output-format {md,jsonl}              (default: md)
"""


def number(x: float) -> str:
    return "-nan" if x != x else f"{x:.6f}"


def ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def row(pp: int, tg: int, pl: int, shared: bool, context: int, step: float) -> str:
    t_pp = 0.008 * pp * (1 if shared else pl)
    t_tg = step * tg
    held = pp + pl * tg if shared else pl * (pp + tg)
    whole = {"n_kv_max": context, "is_pp_shared": int(shared), "pp": pp, "tg": tg, "pl": pl}
    times = {
        "t_pp": t_pp,
        "speed_pp": ratio(pp, t_pp),
        "t_tg": t_tg,
        "speed_tg": ratio(pl * tg, t_tg),
        "t": t_pp + t_tg,
        "speed": ratio(held, t_pp + t_tg),
    }
    text = [f'"{k}": {v}' for k, v in (whole | {"n_kv": held}).items()]
    return "{" + ", ".join(text + [f'"{k}": {number(v)}' for k, v in times.items()]) + "}"


def main(program: Path, argv: list[str]) -> None:
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(HELP)
        return
    if any(word.startswith("--spec-") for word in argv):
        sys.stderr.write("error: invalid argument\n")
        sys.exit(1)
    file = program.with_suffix(".json")
    script = json.loads(file.read_text()) if file.exists() else {}

    def numbers(name: str) -> list[int]:
        return [int(n) for n in argv[argv.index(name) + 1].split(",")]

    context = -(-int(argv[argv.index("-c") + 1]) // 256) * 256 if "-c" in argv else 8192
    shared = "-pps" in argv
    noise = random.Random(7)
    base, slope = script.get("step_ms", [40, 5])
    cost = script.get("jag", {})
    fate = script.get("exit", {})
    rows = 0
    combinations = [
        (pp, tg, pl) for pp in numbers("-npp") for tg in numbers("-ntg") for pl in numbers("-npl")
    ]
    for pp, tg, pl in combinations:
        if (pp + pl * tg if shared else pl * (pp + tg)) > context:
            continue
        if rows == fate.get("after"):
            if fate["code"] < 0:
                os.kill(os.getpid(), -fate["code"])
            sys.exit(fate["code"])
        time.sleep(script.get("row_seconds", 0))
        step = (base + slope * pl) / 1000 * cost.get(str(pl), 1.0) * (1 + pp / 850)
        step *= 1 + script.get("spread", 0) * noise.uniform(-1, 1)
        if rows == 0:
            step *= script.get("warm_up", 1.7)
        line = row(pp, tg, pl, shared, context, step)
        if rows == script.get("half_line"):
            sys.stdout.write(line[: len(line) // 2])
            return
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        rows += 1
    sys.stdout.write("\n\n")
