"""What was learned, as plain data that outlives the daemon.

All of it belongs to one calibration: this engine, machine, models and flags. Acceptance alone is a
matter of the two models and the text: after an update of the engine it is where learning starts
again, worth `WEAK` rounds. What is read back is checked, since the file is anybody's.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autospec.calibration.store import model_identity
from autospec.config.schema import ModelConfig
from autospec.daemon.retuning.costs import Costs, Ratio
from autospec.daemon.retuning.knowledge import Knowledge, total
from autospec.daemon.retuning.trials import Regime, Trial, Trials
from autospec.daemon.setting import Basis
from autospec.engine.launch import Speculation
from autospec.tuning.correction import Correction
from autospec.tuning.evidence import BINS, RoundEvidence
from autospec.tuning.observations import Counters
from autospec.tuning.survival import SurvivalModel

WEAK = 64.0
"""Rounds that acceptance under another engine is worth."""

_LARGEST = 1e12
_MOST_CELLS = 256
_MOST_RATIOS = 64
_MOST_TRIALS = 256
_MOST_POSITIONS = 64

Json = dict[str, Any]
Floats = NDArray[np.float64]


def to_json(knowledge: Knowledge, traffic: Basis | None) -> Json:
    """Everything that `from_json` takes in."""
    live, plain = knowledge.costs.live, knowledge.costs.plain
    return {
        "acceptance": acceptance(knowledge.belief),
        "verifying": _cells(live.verifying),
        "drafting": _cells(live.drafting),
        "plain": [plain.mean, plain.variance, plain.worth],
        "counted": _counted(knowledge),
        "epoch": knowledge.epoch,
        "traffic": [traffic.depth, traffic.busy, traffic.rounds] if traffic else None,
    }


def from_json(fields: Mapping[str, Any], fresh: Knowledge) -> tuple[Knowledge, Basis | None]:
    """`fresh`, which knows a calibration alone, and what was learned on top of it.

    ValueError, TypeError or KeyError for what cannot be.
    """
    live = replace(
        fresh.costs.live,
        verifying=_correction(fields["verifying"]),
        drafting=_correction(fields["drafting"]),
    )
    mean, variance, worth = _numbers(fields["plain"], 3)
    if variance < 0 or worth < 0 or abs(mean) > 10:
        raise ValueError("not a ratio")
    epoch, traffic = fields["epoch"], fields["traffic"]
    if type(epoch) is not int or not 0 <= epoch <= _LARGEST:
        raise ValueError("not an epoch")
    knowledge = replace(
        fresh,
        costs=Costs(live, fresh.longest, Ratio(mean, variance, worth)),
        belief=believed(fields["acceptance"], fresh.longest),
        epoch=epoch,
    )
    if (counted := fields["counted"]) is not None:
        under, counters = _counters(counted)
        knowledge = replace(knowledge, counted=(counters,), counted_under=under)
    if traffic is None:
        return knowledge, None
    depth, busy, rounds = _numbers(traffic, 3)
    if min(depth, rounds) < 0 or not 1 <= busy <= 4096:
        raise ValueError("not a load and a depth")
    return knowledge, Basis(depth, int(busy), int(rounds))


def acceptance(belief: SurvivalModel) -> Json:
    """The evidence of a belief that was made from rounds; empty for another."""
    evidence = belief.evidence
    if not isinstance(evidence, RoundEvidence):
        return {}
    return {
        "trials": evidence.trials.tolist(),
        "hits": evidence.hits.tolist(),
        "cut": evidence.cut.tolist(),
        "rounds": evidence.rounds,
        "losses": list(evidence.losses),
    }


def believed(fields: Mapping[str, Any], longest: int, *, worth: float = math.inf) -> SurvivalModel:
    """The belief that `acceptance` wrote down, worth `worth` rounds at most."""
    trials, hits, cut = (_table(fields[name], longest) for name in ("trials", "hits", "cut"))
    (rounds,) = _numbers([fields["rounds"]], 1)
    losses = _numbers(fields["losses"], 2)
    if np.any(hits > trials) or rounds < 0:
        raise ValueError("more accepted than tried")
    share = min(1.0, worth / rounds) if rounds > 0 else 0.0
    evidence = RoundEvidence(
        share * trials,
        share * hits,
        share * cut,
        share * rounds,
        (share * losses[0], share * losses[1]),
    )
    empty = SurvivalModel.prior(longest)
    return replace(empty, evidence=evidence).update([])


def _counted(knowledge: Knowledge) -> Json | None:
    under = knowledge.counted_under
    if under is None or not knowledge.counted:
        return None
    seen = total(knowledge.counted)
    return {
        "types": list(under.types),
        "under": [under.n_max, under.n_min, under.p_min],
        "counts": [seen.drafts, seen.drafted, seen.accepted, seen.predicted],
        "seconds": seen.predicted_seconds,
        "per_position": list(seen.per_position),
    }


def _counters(fields: Mapping[str, Any]) -> tuple[Speculation, Counters]:
    n_max, n_min, p_min = _numbers(fields["under"], 3)
    drafts, drafted, accepted, predicted = map(int, _numbers(fields["counts"], 4))
    (seconds,) = _numbers([fields["seconds"]], 1)
    positions = tuple(map(int, _numbers(fields["per_position"][:_MOST_POSITIONS], None)))
    reached = (drafts, *positions, 0)
    if any(later > earlier for earlier, later in itertools.pairwise(reached)) or seconds < 0:
        raise ValueError("counts that cannot be")
    if not accepted <= min(drafted, predicted) or not 0 <= p_min <= 1 or min(n_max, n_min) < 0:
        raise ValueError("counts that cannot be")
    types = tuple(str(name)[:40] for name in fields["types"][:8])
    counters = Counters(drafts, drafted, accepted, positions, predicted, seconds)
    return Speculation(types, int(n_max), int(n_min), p_min), counters


def trials_to_json(trials: Trials) -> Json:
    return {
        "failed": [
            [name, at.busy, at.depth, one.over_plain, one.over_predicted]
            for (name, at), one in list(trials.failed.items())[-_MOST_TRIALS:]
        ]
    }


def trials_from_json(fields: Mapping[str, Any]) -> Trials:
    """ValueError, TypeError or KeyError for what cannot be."""
    failed = {}
    for name, busy, depth, *ratios in fields["failed"][:_MOST_TRIALS]:
        over_plain, over_predicted = _numbers(ratios, 2)
        if type(name) is not str or type(busy) is not int or type(depth) is not int:
            raise ValueError("not a trial")
        if min(over_plain, over_predicted) < 0:
            raise ValueError("not a ratio")
        failed[name[:200], Regime(busy, depth)] = Trial(over_plain, over_predicted)
    return Trials(MappingProxyType(failed))


def lineage(config: ModelConfig) -> str | None:
    """What acceptance depends on, the text apart: the two models. None where a file is missing."""
    names = []
    for path, repository in ((config.path, config.hf), (config.draft, config.draft_hf)):
        try:
            names.append(model_identity(path) if path is not None else str(repository))
        except OSError:
            return None
    return "models " + hashlib.sha256("\0".join(names).encode()).hexdigest()[:32]


def _cells(correction: Correction) -> list[list[list[float]]]:
    return [[list(cell.x), list(cell.ratios)] for cell in correction.cells.values()]


def _correction(cells: Sequence[Any]) -> Correction:
    correction = Correction()
    for x, ratios in cells[:_MOST_CELLS]:
        place = np.array([_numbers(x, 3)])
        logs = np.array(_numbers(ratios[:_MOST_RATIOS], None))
        if np.any(np.abs(place) > 64):
            raise ValueError("no step is made there")
        correction = correction.add(np.repeat(place, len(logs), axis=0), logs)
    return correction


def _table(rows: Sequence[Any], longest: int) -> Floats:
    """Counts by position and level; positions that are asked for and were not known are 0."""
    table = np.zeros((longest, len(BINS)))
    for position, row in enumerate(rows[:longest]):
        table[position] = _numbers(row, len(BINS))
    if np.any(table < 0):
        raise ValueError("no count is negative")
    return table


def _numbers(values: Sequence[Any], count: int | None) -> list[float]:
    numbers = [float(value) for value in values if type(value) in (int, float)]
    if len(numbers) != len(values) or (count is not None and len(numbers) != count):
        raise ValueError(f"not {count or 'all'} numbers")
    if not all(math.isfinite(number) and abs(number) <= _LARGEST for number in numbers):
        raise ValueError("a number that cannot be")
    return numbers
