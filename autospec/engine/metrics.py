"""Counters from llama-server's `/metrics`, and what happened between two looks at them.

Only counters are used. The page's gauges are averages since the last scrape by *anyone*, so
another scraper resets them. The counters move when a request ends, not before.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, TypeVar

from autospec.errors import EngineOutputError
from autospec.tuning.observations import Counters

K = TypeVar("K", str, int)
V = TypeVar("V", int, float)

_PAGE_LIMIT: Final = 1 << 20
_LARGEST: Final = 1e15
_MOST_POSITIONS: Final = 1024

_PREFIX: Final = "llamacpp:"
_SAMPLE: Final = re.compile(
    r"llamacpp:(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})?[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*"
)
_POSITION: Final = re.compile(r'(?:^|,)\s*position="(\d{1,4})"')

_COUNTS: Final = {
    "tokens_predicted_total": "predicted",
    "prompt_tokens_total": "prompt_tokens",
    "n_decode_total": "decodes",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "drafted",
    "spec_decode_num_accepted_tokens_total": "accepted",
    "requests_processing": "busy",
}
_SECONDS: Final = {
    "tokens_predicted_seconds_total": "predicted_seconds",
    "prompt_seconds_total": "prompt_seconds",
}
_PER_POSITION: Final = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True)
class ServerCounters:
    """Totals since the server started; None where this build has no such series.

    `predicted` tokens took `predicted_seconds`, which the server prints with six significant
    digits. `prompt_seconds` leaves out a part that the requests' own `prompt_ms` has (a quarter
    to a half with a draft loaded, build 11434). `decodes` leaves out verification. `drafts`
    counts rounds with a draft, `drafted` and `accepted` their tokens; `per_position` is empty
    until a first draft was verified. `busy`, the requests under way, is the one gauge: scrapes
    do not reset it.
    """

    predicted: int | None = None
    predicted_seconds: float | None = None
    prompt_tokens: int | None = None
    prompt_seconds: float | None = None
    decodes: int | None = None
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    per_position: tuple[int, ...] = ()
    busy: int | None = None


def parse_metrics(page: str) -> ServerCounters:
    """Read the Prometheus text that `/metrics` answers.

    Series of others and comments are passed over. Raises EngineOutputError for a line of ours
    that is cut off, unreadable, negative, not finite or contradicts another, and for a page
    of more than a megabyte.
    """
    if len(page) > _PAGE_LIMIT:
        raise _refusal(f"a metrics page of {len(page)} characters", page)
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    positions: dict[int, int] = {}
    for line in page.splitlines(keepends=True):
        if not line.startswith(_PREFIX):
            continue
        if not line.endswith("\n"):
            raise _refusal("the metrics page ends in the middle of a line", line)
        sample = _SAMPLE.fullmatch(line.rstrip("\r\n"))
        if sample is None:
            raise _refusal("a metrics line that cannot be read", line)
        name = sample["name"]
        if field := _COUNTS.get(name):
            _put(counts, field, _count(sample["value"], line), line)
        elif field := _SECONDS.get(name):
            _put(seconds, field, _number(sample["value"], line), line)
        elif name == _PER_POSITION:
            _put(positions, _position(sample["labels"], line), _count(sample["value"], line), line)
    if sorted(positions) != list(range(len(positions))):
        raise _refusal(f"accepted tokens for the positions {sorted(positions)} only", _PER_POSITION)
    return ServerCounters(
        predicted=counts.get("predicted"),
        predicted_seconds=seconds.get("predicted_seconds"),
        prompt_tokens=counts.get("prompt_tokens"),
        prompt_seconds=seconds.get("prompt_seconds"),
        decodes=counts.get("decodes"),
        drafts=counts.get("drafts"),
        drafted=counts.get("drafted"),
        accepted=counts.get("accepted"),
        per_position=tuple(positions[i] for i in range(len(positions))),
        busy=counts.get("busy"),
    )


def difference(before: ServerCounters, after: ServerCounters) -> Counters | None:
    """What was counted between two scrapes of one child.

    None where the two do not belong together (a counter went down, so the child restarted, or
    a series came or went, so it is another build) and where the build counts no tokens. Build
    9093 counts no drafts.
    """
    drafts = _growth(before.drafts, after.drafts)
    drafted = _growth(before.drafted, after.drafted)
    accepted = _growth(before.accepted, after.accepted)
    predicted = _growth(before.predicted, after.predicted)
    seconds = _growth(before.predicted_seconds, after.predicted_seconds)
    if predicted is None or seconds is None:
        return None
    if _silent(before) and _silent(after):
        return Counters(0, 0, 0, (), int(predicted), seconds, tells_drafts=False)
    if drafts is None or drafted is None or accepted is None or accepted > drafted:
        return None
    missing = len(after.per_position) - len(before.per_position)
    if missing < 0:
        return None
    earlier = before.per_position + (0,) * missing
    per_position = tuple(now - then for then, now in zip(earlier, after.per_position, strict=True))
    if min(per_position, default=0) < 0:
        return None
    return Counters(
        drafts=int(drafts),
        drafted=int(drafted),
        accepted=int(accepted),
        per_position=per_position,
        predicted=int(predicted),
        predicted_seconds=seconds,
    )


def _silent(seen: ServerCounters) -> bool:
    """Whether this build counts no drafts."""
    return seen.drafts is None and seen.drafted is None and seen.accepted is None


def _growth(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _number(text: str, line: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _refusal("a metrics value that is no number", line) from None
    if not math.isfinite(number) or not 0 <= number <= _LARGEST:
        raise _refusal("a metrics value that cannot be", line)
    return number


def _count(text: str, line: str) -> int:
    number = _number(text, line)
    if number != int(number):
        raise _refusal("a metrics count that is not whole", line)
    return int(number)


def _position(labels: str | None, line: str) -> int:
    match = _POSITION.search(labels or "")
    if match is None or int(match[1]) >= _MOST_POSITIONS:
        raise _refusal("accepted tokens for no real position", line)
    return int(match[1])


def _put(into: dict[K, V], key: K, value: V, line: str) -> None:
    if into.setdefault(key, value) != value:
        raise _refusal("a metrics series that occurs twice with different values", line)


def _refusal(message: str, line: str) -> EngineOutputError:
    return EngineOutputError(
        message, line=line[:300], hint="open /metrics of this server and look at that line"
    )
