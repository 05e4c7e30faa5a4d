"""What the arms are asked: kinds of text, a conversation that grows, long contexts, a mixture.

Every request is the same in every run. Long contexts are written by a seeded generator, each
another text, so that no prompt cache can help with them.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeGuard

from autospec.calibration.curves import read_text
from autospec.engine.server import Message
from autospec.errors import UsageError

KINDS = ("code", "prose", "extraction", "repetition", "translation")
MULTI_TURN = "multi_turn"
MIXTURE = "mixture"
OWN = "own"
"""The workload of a user's own prompts."""

WORKLOADS = (*KINDS, MULTI_TURN, MIXTURE)

_SEED = 20
_TOKENS_A_WORD = 1.35
_LAST = "Go on with this report in the same style and write ten more entries."


@dataclass(frozen=True)
class Request:
    """A conversation that ends with the user; `kind` is the workload it belongs to."""

    kind: str
    messages: tuple[Message, ...]


def requests_of(own: Path | None = None) -> dict[str, tuple[Request, ...]]:
    """The requests of every workload by name, the mixture of them included.

    With a file of `own` prompts there is that workload alone. The mixture holds all the others,
    in an order that is always the same.
    """
    if own is not None:
        return {OWN: read_prompts(own)}
    data = _data()
    found = {kind: tuple(_request(kind, text) for text in data[kind]) for kind in KINDS}
    found[MULTI_TURN] = tuple(
        request for talk in data["conversations"] for request in _turns(talk["turns"])
    )
    mixed = [request for requests in found.values() for request in requests]
    random.Random(_SEED).shuffle(mixed)  # noqa: S311 - an order, guards nothing
    found[MIXTURE] = tuple(mixed)
    return found


def deep_request(depth: int, number: int) -> Request:
    """A request with about `depth` tokens of context; another text for every `number`."""
    words = max(1, int(depth / _TOKENS_A_WORD))
    report = _report(words, random.Random(f"{_SEED} {depth} {number}"))  # noqa: S311
    return _request("depth", f"{report}\n\n{_LAST}")


def read_prompts(path: Path) -> tuple[Request, ...]:
    """A user's own prompts: one a line, or JSON lines that hold `prompt` or `messages`.

    UsageError with the line for whatever is neither, and for a file without a prompt.
    """
    lines = [(n, line) for n, line in enumerate(read_text(path).splitlines(), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no prompt", hint="write one a line, or JSON lines")
    if path.suffix in (".jsonl", ".json"):
        return tuple(_own(f"{path}:{number}", line) for number, line in lines)
    return tuple(_request(OWN, line.strip()) for _, line in lines)


def _own(where: str, line: str) -> Request:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where} is no JSON object: {line[:200]!r}") from None
    messages = entry.get("messages") if isinstance(entry, dict) else None
    prompt = entry.get("prompt") if isinstance(entry, dict) else None
    if isinstance(prompt, str) and prompt.strip() and messages is None:
        return _request(OWN, prompt)
    if _is_conversation(messages):
        return Request(
            OWN, tuple({"role": one["role"], "content": one["content"]} for one in messages)
        )
    raise UsageError(
        f"{where} holds neither a 'prompt' nor 'messages': {line[:200]!r}",
        hint='write {"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}',
    )


def _is_conversation(messages: object) -> TypeGuard[list[dict[str, str]]]:
    """Whether it is a list of messages of which the user has the last."""
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        return False
    return bool(messages) and messages[-1]["role"] == "user"


def _is_message(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("role") in ("system", "user", "assistant")
        and isinstance(entry.get("content"), str)
    )


def _request(kind: str, text: str) -> Request:
    return Request(kind, ({"role": "user", "content": text},))


def _turns(turns: Sequence[str]) -> list[Request]:
    """One request for each of the user's turns, with everything said before it."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return [Request(MULTI_TURN, tuple(messages[: last + 1])) for last in range(0, len(messages), 2)]


def _report(words: int, chance: random.Random) -> str:
    parts: Mapping[str, list[str]] = _data()["report"]
    lines: list[str] = []
    written, entry = 0, chance.randrange(100, 900)
    while written < words:
        chosen = [chance.choice(parts[part]) for part in ("who", "did", "what", "where", "then")]
        hour, minute = chance.randrange(24), chance.randrange(60)
        lines.append(f"Entry {entry}, {hour}:{minute:02}. {' '.join(chosen)}.")
        written += len(lines[-1].split()) + 6  # numbers are several tokens each
        entry += 1
    return "\n".join(lines)


def _data() -> dict[str, Any]:
    text = files("autospec.bench").joinpath("workloads.toml").read_text("utf-8")
    return tomllib.loads(text)
