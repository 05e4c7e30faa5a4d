"""How often drafting changes a greedy answer, with and without the live library.

A batch of another size rounds differently in the engine itself, so near-ties may fall otherwise
than in plain decoding. For each fixed draft length this counts the prompts that the stock engine
answers differently from plain decoding, and those that the engine with the library answers
differently from the stock engine at the same length, which should be none.

    python tests/benchmarks/divergence.py [--tokens 48] [--lengths 1,2,4,8] [--json]

Run it from the root of the project, with nothing else running.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_server import asked

from autospec.calibration.prompts import prompts
from autospec.demo.assets import ensure_models
from autospec.engine.find import find_engine
from autospec.engine.launch import Speculation
from autospec.engine.live.applier import LiveSession, live_speculation
from autospec.engine.live.policy import at_most

WARM_UP = 12
Tokens = list[tuple[int, ...]]


def differing(one: Tokens, other: Tokens) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--lengths", default="1,2,4,8")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    engine, models = find_engine(), ensure_models(lambda *_: None)
    pair = models.draft, models.draft_one_dropped
    asking = [one.text for part in ("learning", "evaluation") for one in prompts(part)]  # type: ignore[arg-type]

    def answers(speculation: Speculation, session: LiveSession | None = None) -> Tokens:
        with asked(engine, pair, speculation, session=session) as server:
            if session is not None:
                server.answer(asking[0], WARM_UP)
                limit = at_most(speculation.n_max, speculation.n_max)
                session.put(replace(limit, sole=True))
            return [server.answer(text, options.tokens).tokens for text in asking]

    plain = answers(Speculation())
    again = answers(Speculation())
    rows = []
    for length in lengths:
        flags = Speculation(("draft-simple",), n_max=length, n_min=0, p_min=0.0)
        stock = answers(flags)
        session = LiveSession.open()
        try:
            live = answers(live_speculation(flags), session)
        finally:
            session.close()
        rows.append(
            {
                "length": length,
                "stock_from_plain": differing(stock, plain),
                "live_from_plain": differing(live, plain),
                "live_from_stock": differing(live, stock),
            }
        )
        print(rows[-1], file=sys.stderr)
    if options.json:
        found = {"prompts": len(asking), "plain_from_plain": differing(again, plain), "rows": rows}
        print(json.dumps(found, indent=2))
        return
    print(f"{len(asking)} prompts, {options.tokens} tokens each, greedy, one slot")
    print(f"plain from plain: {differing(again, plain)}")
    print("length  stock from plain  live from plain  live from stock")
    for row in rows:
        print(
            f"{row['length']:6}  {row['stock_from_plain']:16}"
            f"  {row['live_from_plain']:15}  {row['live_from_stock']:15}"
        )


if __name__ == "__main__":
    main()
