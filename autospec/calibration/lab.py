"""`autospec lab` on files: costs from a benchmark, rounds from a recording, or a mixture."""

from __future__ import annotations

import json
from pathlib import Path

from autospec.calibration.curves import read_rounds, read_steps, read_text
from autospec.errors import UsageError
from autospec.tuning.cost import CostSurface
from autospec.tuning.lab import Comparison, compare, recorded_cost
from autospec.tuning.mixture import Mixture
from autospec.tuning.simulate import Result, simulate


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


def simulate_file(mixture_file: Path, *, limit_is_free: bool) -> Result:
    """Play the mixture in the file; UsageError where it holds none."""
    try:
        mixture = Mixture.from_json(json.loads(read_text(mixture_file)))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{mixture_file} is not a mixture: {error}") from None
    return simulate(mixture, limit_is_free=limit_is_free)
