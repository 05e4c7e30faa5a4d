"""Reading what `llama-batched-bench --output-format jsonl` prints.

A row says: `pl` sequences generated `tg` tokens each after a prompt of `pp` tokens, which took
`t_tg` seconds; so one step of `pl` tokens took `t_tg / tg`. The tool prints `-nan` for speeds
of an empty prompt, which is no JSON; only the figures that are used have to be finite.
Combinations that do not fit the context are left out silently, with exit code 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autospec.errors import EngineOutputError

_NOT_JSON = re.compile(
    r"(?<=[:\s,\[])-?nan(?:\([a-z]*\))?(?=\s*[,}\]])|(?<=[:\s,\[])-?inf(?=\s*[,}\]])", re.IGNORECASE
)
_MAX_LINE = 65_536
_LARGEST = 10**15


@dataclass(frozen=True)
class BenchRow:
    """One combination: `parallel` sequences at a prompt of `depth` tokens, `steps` steps.

    `seconds` is the time of all steps, `prompt_seconds` that of the prompt before them (None
    where the tool printed nothing finite).
    """

    depth: int
    steps: int
    parallel: int
    shared_prompt: bool
    seconds: float
    prompt_seconds: float | None = None

    @property
    def step_ms(self) -> float:
        return 1000 * self.seconds / self.steps


@dataclass(frozen=True)
class Combination:
    depth: int
    parallel: int


def parse_row(line: str) -> BenchRow | None:
    """The row that `line` holds, None for blank lines and for text that is no row at all.

    Raises EngineOutputError for a row that is cut off, lacks a figure or has one that is not
    finite or not positive where a time or a count must be.
    """
    text = line.strip()
    if not text.startswith("{"):
        return None
    if len(text) > _MAX_LINE:
        raise EngineOutputError("llama-batched-bench printed an endless row", line=text)
    try:
        fields = json.loads(_NOT_JSON.sub("null", text))
    except (ValueError, RecursionError):
        raise EngineOutputError(
            "llama-batched-bench printed an unreadable row", line=text
        ) from None
    if not isinstance(fields, dict):
        raise EngineOutputError("llama-batched-bench printed an unreadable row", line=text)
    return BenchRow(
        depth=_count(fields, "pp", text, least=0),
        steps=_count(fields, "tg", text, least=1),
        parallel=_count(fields, "pl", text, least=1),
        shared_prompt=bool(fields.get("is_pp_shared", 0)),
        seconds=_seconds(fields, text),
        prompt_seconds=_finite(fields.get("t_pp")),
    )


def parse_rows(lines: Iterable[str]) -> Iterator[BenchRow]:
    """Every row in `lines`, in order; see `parse_row` for what is refused."""
    for line in lines:
        if (row := parse_row(line)) is not None:
            yield row


def missing(asked: Sequence[Combination], rows: Iterable[BenchRow]) -> list[Combination]:
    """The combinations that the tool left out without a word (they did not fit its context)."""
    seen = {Combination(row.depth, row.parallel) for row in rows}
    return [combination for combination in dict.fromkeys(asked) if combination not in seen]


def _count(fields: dict[str, object], key: str, line: str, *, least: int) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise EngineOutputError(
            f"llama-batched-bench printed a row without a usable {key!r}", line=line
        )
    return value


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before it is converted: JSON has whole numbers that no float can hold.
    return float(value) if -_LARGEST <= value <= _LARGEST else None


def _seconds(fields: dict[str, object], line: str) -> float:
    value = _finite(fields.get("t_tg"))
    if value is None or value <= 0:
        raise EngineOutputError(
            "llama-batched-bench printed a row without a usable 't_tg'", line=line
        )
    return value
