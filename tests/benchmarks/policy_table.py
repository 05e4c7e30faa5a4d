"""How long the policy table takes to solve, and how that grows. Not collected by pytest.

    OMP_NUM_THREADS=1 python tests/benchmarks/policy_table.py [--repeats 5] [--json]

The table is over loads (busy slots), depths and positions, on the seed's Qwen3-235B curve with a
draft that takes 4 % of the target's time, under a belief learned from 400 simulated rounds. "one
rule" takes the slots of a load to stop together (`solve_table`); "apart" lets each stop for
itself, with a free limit for each round (`policy_table`), from nothing and from the table in
force after 32 more rounds. Times are CPU time of this process, the least of some repeats.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from autospec.tuning.cost import CostSurface, DraftCost, RoundCost, StepTime, round_cost
from autospec.tuning.observations import Round
from autospec.tuning.shared import policy_table
from autospec.tuning.stopping import solve_table
from autospec.tuning.survival import SurvivalModel

DATA = Path(__file__).parent.parent / "data"
PLAIN_MS = 100.0
LOADS, DEPTHS, POSITIONS = 8, 8, 64

Costs = dict[tuple[int, float], RoundCost]


def surfaces() -> tuple[CostSurface, DraftCost]:
    """The curve, going on with its last slope, and a tenth dearer for each 8192 tokens of depth."""
    curves = json.loads((DATA / "seed_curves.json").read_text())["curves"]
    relative = next(c["relative_cost"] for c in curves if "235" in c["name"].lower())
    steps = [PLAIN_MS * y * (i + 1) for i, y in enumerate(relative)]
    slope = (steps[-1] - steps[-9]) / 8
    largest = LOADS * (POSITIONS + 1)
    more = range(len(steps) + 8, largest + 8, 8)
    batches = [*enumerate(steps, 1), *((b, steps[-1] + slope * (b - len(steps))) for b in more)]
    rows = [(b, 0, ms) for b, ms in batches]
    rows += [(b, 65536, ms * 1.8) for b, ms in batches if b in (1, 4, 16, 32)]
    target = CostSurface.from_steps(StepTime(b, d, ms, 0.02 * ms, 3) for b, d, ms in rows)
    draft = CostSurface.from_steps(StepTime(b, d, ms / 25, ms / 1250, 3) for b, d, ms in rows)
    return target, DraftCost("autoregressive", draft)


def belief(positions: int, rounds: int) -> SurvivalModel:
    random = np.random.default_rng(1)
    p = 1.0 / (1.0 + np.exp(-random.normal(1.0, 1.5, (rounds, positions))))
    hits = random.random(p.shape) < p
    accepted = np.where(hits.all(axis=1), positions, np.argmin(hits, axis=1))
    seen = [Round(tuple(row), int(n)) for row, n in zip(p.tolist(), accepted, strict=True)]
    return SurvivalModel.from_rounds(seen, positions)


def table_of(loads: int, depths: int, positions: int) -> Costs:
    target, draft = surfaces()
    return {
        (slots, depth): round_cost(target, draft, n_max=positions, depth=depth, slots=slots)
        for slots in range(1, loads + 1)
        for depth in np.linspace(0.0, 65536.0, depths).tolist()
    }


def least_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000.0 * min(times)


def measure(loads: int, depths: int, positions: int, repeats: int) -> dict[str, float]:
    costs = table_of(loads, depths, positions)
    seen, later = belief(positions, 400), belief(positions, 432)
    in_force = policy_table(costs, seen, limit_is_free=True)
    return {
        "loads": loads,
        "depths": depths,
        "positions": positions,
        "chain_ms": least_ms(lambda: type(seen.chain).of(seen.q, seen.weight), repeats),
        "one_rule_ms": least_ms(lambda: solve_table(list(costs.values()), seen), repeats),
        "apart_ms": least_ms(lambda: policy_table(costs, seen, limit_is_free=True), repeats),
        "again_ms": least_ms(
            lambda: policy_table(costs, later, limit_is_free=True, start=in_force), repeats
        ),
    }


def main() -> None:
    """Print one row a table: the whole one, and each dimension grown alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    shapes = [(LOADS, DEPTHS, POSITIONS)]
    shapes += [(LOADS, DEPTHS, positions) for positions in (8, 16, 32)]
    shapes += [(loads, DEPTHS, POSITIONS) for loads in (1, 2, 4)]
    shapes += [(LOADS, depths, POSITIONS) for depths in (2, 4)]
    found = [measure(*shape, given.repeats) for shape in shapes]
    if given.as_json:
        print(json.dumps(found, indent=2))
        return
    names = list(found[0])
    print("  ".join(f"{name:>11}" for name in names))
    for row in found:
        print("  ".join(f"{row[name]:>11.0f}" for name in names))


if __name__ == "__main__":
    main()
