"""`autospec lab` on files: costs from a benchmark, rounds from a recording."""

from __future__ import annotations

from pathlib import Path

from autospec.calibration.curves import read_rounds, read_steps
from autospec.errors import UsageError
from autospec.tuning.cost import CostSurface
from autospec.tuning.lab import Comparison, compare, recorded_cost


def compare_files(cost_file: Path, rounds_file: Path, *, depth: int = 0) -> Comparison:
    """Score every stopping rule on the rounds in one file under the costs in the other.

    UsageError where a file is unusable, or the costs do not reach to the rounds.
    """
    rounds = read_rounds(rounds_file)
    steps = read_steps(cost_file)
    try:
        target = CostSurface.from_steps(steps)
        cost = recorded_cost(rounds, target, depth=depth)
        batches = range(1, cost.n_max + 2)
        step_ms = [target.step(batch, depth).value for batch in batches]
        relative = [ms / batch / step_ms[0] for batch, ms in zip(batches, step_ms, strict=True)]
        return compare(cost, rounds, relative)
    except ValueError as error:
        raise UsageError(
            f"{cost_file} and {rounds_file} cannot be compared: {error}",
            hint="record every batch up to the longest draft and one: "
            "llama-batched-bench -npp DEPTH -ntg 8 -npl 1,1,2,… -pps -kvu --output-format jsonl",
        ) from None
