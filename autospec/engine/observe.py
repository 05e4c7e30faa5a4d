"""What llama-server says of itself over HTTP: `/health`, `/slots`, `/props`, and the timings
that come with each completion. Pure parsers: a body in, plain data out.
"""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from autospec.errors import EngineOutputError

_BODY_LIMIT = 1 << 26
_LARGEST = 10**15

_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxdict, _brief.maxstring = 3, 8, 200

Health = Literal["ok", "loading", "failing"]


@dataclass(frozen=True)
class SlotState:
    """One slot. `n_ctx` is its context in tokens; `depth` how many of them are filled, None
    where the build does not say or nothing was asked of the slot yet. `speculative` None: an
    old build that does not say. `task` numbers the request that it works on."""

    id: int
    n_ctx: int
    speculative: bool | None
    processing: bool
    depth: int | None
    task: int | None = None


@dataclass(frozen=True)
class Props:
    """`context` is that of one slot, in tokens. The speculation type that `/props` shows is
    wrong in current builds and is left out; see SlotState."""

    slots: int | None
    context: int | None
    model_path: str | None
    build: str | None


@dataclass(frozen=True)
class Timings:
    """One completion. `prompt_n` tokens were evaluated and `cached_n` more taken from the
    cache. `drafted` and `accepted` are None where nothing speculated. Times in ms."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cached_n: int | None = None
    drafted: int | None = None
    accepted: int | None = None

    @property
    def mostly_cached(self) -> bool:
        """More of the prompt came from the cache than was evaluated: no measurement."""
        return (self.cached_n or 0) > self.prompt_n

    @property
    def tokens_per_second(self) -> float | None:
        return self.predicted_n * 1000 / self.predicted_ms if self.predicted_ms else None


def parse_health(status: int, body: bytes | str) -> Health:
    """Judge an answer of `/health`. 503 with "loading" in it is a model on its way.

    "ok" is not yet "alive": a hung server goes on answering it.
    """
    if status == 200:
        return "ok"
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return "loading" if status == 503 and "loading" in text[:1000].lower() else "failing"


def parse_slots(body: bytes | str) -> list[SlotState]:
    """Read `/slots`, in the server's order. Raises EngineOutputError."""
    slots = _load(body)
    if not isinstance(slots, list):
        _refuse("/slots answered no list", slots)
    return [_slot(slot) for slot in slots]


def parse_props(body: bytes | str) -> Props:
    """Read `/props`. Raises EngineOutputError."""
    props = _object(_load(body), "/props")
    settings = props.get("default_generation_settings")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return Props(
        slots=_count_or_none(props, "total_slots"),
        context=_count_or_none({"n_ctx": context}, "n_ctx"),
        model_path=_text_or_none(props, "model_path"),
        build=_text_or_none(props, "build_info"),
    )


def parse_timings(body: bytes | str) -> Timings | None:
    """Read the `timings` of a completion, or of the last event of a streamed one.

    None where there are none (a request that failed). Raises EngineOutputError.
    """
    timings = _object(_load(body), "a completion").get("timings")
    if timings is None:
        return None
    timings = _object(timings, "timings")
    drafted = _count_or_none(timings, "draft_n")
    accepted = _count_or_none(timings, "draft_n_accepted")
    if drafted is not None and accepted is not None and accepted > drafted:
        _refuse("more tokens accepted than drafted", timings)
    return Timings(
        prompt_n=_count(timings, "prompt_n"),
        prompt_ms=_number(timings, "prompt_ms"),
        predicted_n=_count(timings, "predicted_n"),
        predicted_ms=_number(timings, "predicted_ms"),
        cached_n=_count_or_none(timings, "cache_n"),
        drafted=drafted,
        accepted=accepted,
    )


def _slot(slot: object) -> SlotState:
    slot = _object(slot, "a slot")
    processing = slot.get("is_processing", False)
    speculative = slot.get("speculative")
    if not isinstance(processing, bool) or not isinstance(speculative, bool | None):
        _refuse("a slot whose state is neither true nor false", slot)
    n_ctx = _count(slot, "n_ctx")
    depth = _depth(slot)
    return SlotState(
        id=_count(slot, "id"),
        n_ctx=n_ctx,
        speculative=speculative,
        processing=processing,
        depth=None if depth is None else min(depth, n_ctx),
        task=_task(slot),
    )


def _task(slot: dict[str, Any]) -> int | None:
    """The number of the slot's task; builds write −1 where there is none."""
    task = slot.get("id_task")
    return None if task == -1 else _count_or_none(slot, "id_task")


def _depth(slot: dict[str, Any]) -> int | None:
    """Count what is in the slot's context: prompt (evaluated or cached) and generated.

    `n_prompt_tokens` is not used where its parts are known: it holds the whole prompt before
    that is evaluated, and drafted tokens while a draft is verified.
    """
    evaluated = _count_or_none(slot, "n_prompt_tokens_processed")
    if evaluated is None:
        return _count_or_none(slot, "n_past")
    cached = _count_or_none(slot, "n_prompt_tokens_cache") or 0
    following = slot.get("next_token")
    if isinstance(following, list):
        following = following[0] if following else None
    generated = _count_or_none(following, "n_decoded") if isinstance(following, dict) else None
    return evaluated + cached + (generated or 0)


def _load(body: bytes | str) -> object:
    if len(body) > _BODY_LIMIT:
        _refuse(f"an answer of {len(body)} bytes", body[:300])
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        _refuse(f"an answer that is no JSON ({type(error).__name__})", body[:300])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{what} is no JSON object", value)
    return value


def _number(source: dict[str, Any], key: str) -> float:
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"{key} is no number", source)
    if not 0 <= value <= _LARGEST:
        _refuse(f"{key} cannot be", source)
    return value


def _count(source: dict[str, Any], key: str) -> int:
    value = _number(source, key)
    if value != int(value):
        _refuse(f"{key} is not whole", source)
    return int(value)


def _count_or_none(source: dict[str, Any], key: str) -> int | None:
    return None if source.get(key) is None else _count(source, key)


def _text_or_none(source: dict[str, Any], key: str) -> str | None:
    value = source.get(key)
    return value if isinstance(value, str) and value else None


def _refuse(message: str, shown: object) -> NoReturn:
    raise EngineOutputError(
        message, line=_brief.repr(shown), hint="see whether another program answers on this port"
    )
