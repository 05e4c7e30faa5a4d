"""Cost curves and recorded rounds that somebody kept in a file.

A cost file is either JSON of the form `{"curves": [{"name": …, "relative_cost": [1, …],
"skip": 1}]}` or what `llama-batched-bench --output-format jsonl` printed. A rounds file holds
one JSON object a line: `p`, `accepted` and, where they were measured, `draft_ms`, `verify_ms`.
Files are hostile input: whatever is not usable is refused with its place and the text itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from autospec.calibration.measure import step_times
from autospec.engine.bench import BenchRow, parse_row
from autospec.errors import EngineOutputError, UsageError
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round
from autospec.tuning.powerlaw import check_curve

_MAX_BYTES = 64 * 1024 * 1024
_MAX_DRAFT = 1024
_MAX_BATCH = _MAX_DRAFT + 1


@dataclass(frozen=True)
class Curve:
    """`relative_cost[i]`: cost of a token in a batch of i+1, in units of plain decoding.

    `skip` is how many batches a fit leaves out, None where the file does not say. `notes` says
    what was measured but is not in the curve.
    """

    name: str
    relative_cost: tuple[float, ...]
    skip: int | None = None
    notes: tuple[str, ...] = ()


def read_curves(path: Path) -> list[Curve]:
    """Every curve in the cost file at `path`, one a depth if it is a benchmark's output."""
    text = read_text(path)
    document = _json_document(text)
    curves = (
        _seed_curves(path, document)
        if isinstance(document, dict) and "curves" in document
        else _bench_curves(path, text)
    )
    if not curves:
        raise UsageError(
            f"{path} holds no cost curve",
            hint="give JSON with 'curves', or the output of llama-batched-bench as jsonl",
        )
    return curves


def read_steps(path: Path) -> tuple[StepTime, ...]:
    """Step times (ms) in the benchmark output at `path`, medians over its repeats.

    The warm-up row, which the benchmark prints first and repeats, is left out. Rows without a
    prompt count as shared: there is nothing that the sequences could have apart.
    """
    rows = _without_warm_up(_bench_rows(path, read_text(path)))
    if not rows:
        raise UsageError(
            f"{path} holds no benchmark row",
            hint="record one with llama-batched-bench … --output-format jsonl",
        )
    return step_times(rows)


def read_rounds(path: Path) -> list[Round]:
    """The recorded rounds at `path`, in order; UsageError for a line that is no round."""
    rounds = [
        _round(path, number, line)
        for number, line in enumerate(read_text(path).splitlines(), start=1)
        if line.strip()
    ]
    if not rounds:
        raise UsageError(f"{path} holds no round")
    return rounds


def read_text(path: Path) -> str:
    """The whole file; UsageError where it is missing, too large or no text."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text (UTF-8)") from None


def _json_document(text: str) -> object:
    """What the whole text means as one JSON document, None if it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _seed_curves(path: Path, document: dict[str, Any]) -> list[Curve]:
    entries = document["curves"]
    if not isinstance(entries, list):
        raise UsageError(f"{path}: 'curves' is not a list")
    return [_seed_curve(f"{path}: curve {n}", entry) for n, entry in enumerate(entries, start=1)]


def _seed_curve(where: str, entry: object) -> Curve:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not an object: {_shown(entry)}")
    costs = entry.get("relative_cost")
    if not isinstance(costs, list) or not all(map(_is_number, costs)):
        raise UsageError(f"{where}: 'relative_cost' is not a list of numbers: {_shown(costs)}")
    if len(costs) > _MAX_BATCH:
        raise UsageError(f"{where}: {len(costs)} batches, more than {_MAX_BATCH}")
    skip = entry.get("skip")
    if skip is not None and not (_is_int(skip) and 1 <= skip < len(costs) - 1):
        raise UsageError(f"{where}: 'skip' leaves fewer than two batches: {_shown(skip)}")
    try:
        check_curve(costs)
    except ValueError as error:
        raise UsageError(f"{where}: {error}: {_shown(costs)}") from None
    name = entry.get("name")
    return Curve(name if isinstance(name, str) else where, tuple(map(float, costs)), skip)


def _bench_curves(path: Path, text: str) -> list[Curve]:
    rows = _without_warm_up(_bench_rows(path, text))
    by_depth: dict[int, dict[int, float]] = {}
    for step in step_times(rows):
        by_depth.setdefault(step.depth, {}).setdefault(step.total, step.ms)
    curves = []
    for depth, ms in sorted(by_depth.items()):
        length = 0
        while length + 1 in ms and length < _MAX_BATCH:
            length += 1
        if length < 2:
            raise UsageError(
                f"{path}: at depth {depth} the batches 1 and 2 are not both measured",
                hint="record every batch: llama-batched-bench … -npl 1,1,2,3,…",
            )
        relative = tuple(ms[b] / b / ms[1] for b in range(1, length + 1))
        beyond = sorted(batch for batch in ms if batch > length)
        notes = (f"batches behind the gap at {length + 1} are left out: {beyond[:8]}",)
        curves.append(Curve(f"depth {depth}", relative, notes=notes if beyond else ()))
    return curves


def _bench_rows(path: Path, text: str) -> list[BenchRow]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = parse_row(line)
        except EngineOutputError as error:
            raise UsageError(f"{path}:{number}: {error}") from None
        if row is not None:
            rows.append(row if row.depth else replace(row, shared_prompt=True))
    return rows


def _without_warm_up(rows: list[BenchRow]) -> list[BenchRow]:
    """`rows` less the first of each run of the tool where the next one repeats it."""
    starts = [True, *(a.depth != b.depth for a, b in pairwise(rows))]
    repeated = [_combination(a) == _combination(b) for a, b in pairwise(rows)] + [False]
    return [
        row
        for row, start, again in zip(rows, starts, repeated, strict=False)
        if not (start and again)
    ]


def _combination(row: BenchRow) -> tuple[int, int, bool]:
    return row.depth, row.parallel, row.shared_prompt


def _round(path: Path, number: int, line: str) -> Round:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError(f"{path}:{number}: not a JSON object: {line.strip()[:300]!r}")
    return round_of(f"{path}:{number}", fields, line.strip())


def round_of(where: str, fields: object, text: str | None = None) -> Round:
    """The round that `fields` hold; UsageError, with `where` and `text`, for what is none."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"{where}: {why}: {_shown(fields if text is None else text)}")

    if not isinstance(fields, dict):
        raise refuse("not an object")
    p, accepted = fields.get("p"), fields.get("accepted")
    if not isinstance(p, list) or not all(_is_number(value) and 0 <= value <= 1 for value in p):
        raise refuse("'p' is not a list of probabilities")
    if len(p) > _MAX_DRAFT:
        raise refuse(f"more than {_MAX_DRAFT} drafted tokens")
    if not (_is_int(accepted) and 0 <= accepted <= len(p)):
        raise refuse("'accepted' is not between 0 and the number drafted")
    times = {}
    for key in ("draft_ms", "verify_ms"):
        value = fields.get(key)
        if value is not None and not (_is_number(value) and value >= 0):
            raise refuse(f"{key!r} is not a time")
        times[key] = None if value is None else float(value)
    return Round(tuple(map(float, p)), accepted, times["draft_ms"], times["verify_ms"])


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 and math.isfinite(value)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return repr(value)[:200]
