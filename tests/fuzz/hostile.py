"""Hostile input made from sound input, and the bounds that every parser keeps to."""

from __future__ import annotations

import contextlib
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

NUMBERS = (
    "0", "-0", "-1", "1e309", "-1e309", "1e-400", "NaN", "-nan", "Infinity", "2147483648",
    "9223372036854775808", "18446744073709551616", "9" * 400, "9" * 5000, "0x10", "1_000", "٣",
    "1.5", "true", "null", '""', "[]", "{}", "1e15", "1000000000000001", "\x00",
)  # fmt: skip
FRAGMENTS = (
    "\n", "\r\n", "\r", "\x00", "\x1b[2J", "\u2028", "\ud800", "﻿", '"', "'", "\\", "{", "}",
    "[", "]", "(", ")", ",", ":", "=", "#", " " * 300, "-" * 300, "\t", "é", "𝕏", "%s%n", "../",
)  # fmt: skip

MEMORY_A_BYTE = 300
"""Bytes that a parser may hold at its height for one byte of input: deep JSON takes most."""
MEMORY_AT_REST = 1 << 19
LONGEST_LINE = 2000


@dataclass(frozen=True)
class Target:
    """`parse` takes the text; `seeds` are sound inputs; `refuses` are its errors.

    `shown` are the texts of a result that people get to see.
    """

    parse: Callable[[str], object]
    seeds: tuple[str, ...]
    refuses: tuple[type[Exception], ...] = ()
    check: Callable[[Any], bool] = lambda _result: True
    shown: Callable[[Any], Iterable[str | None]] = lambda _result: ()


@st.composite
def hostile(draw: st.DrawFn, seeds: tuple[str, ...]) -> str:
    """One of `seeds` after a few cuts, copies, swaps, wild numbers and strange characters."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(text)))
        span = draw(st.sampled_from([0, 1, 2, 7, 40, 400, len(text)]))
        match draw(st.sampled_from(["cut", "end", "copy", "many", "number", "strange", "splice"])):
            case "cut":
                text = text[:at] + text[at + span :]
            case "end":
                text = text[:at]
            case "copy":
                text = text[:at] + text[at : at + span] + text[at:]
            case "many":
                piece = text[at : at + min(span, 40)]
                text = text[:at] + piece * draw(st.sampled_from([3, 50, 800])) + text[at:]
            case "number":
                text = _in_place_of_a_number(text, at, draw(st.sampled_from(NUMBERS)))
            case "strange":
                text = text[:at] + draw(st.sampled_from(FRAGMENTS)) + text[at + span :]
            case "splice":
                other = draw(st.sampled_from(seeds))
                text = text[:at] + other[draw(st.integers(0, len(other))) :]
        text = text[: 1 << 17]
    return text


def _in_place_of_a_number(text: str, start: int, number: str) -> str:
    at = next((i for i in range(start, len(text)) if text[i].isdigit()), None)
    if at is None:
        return text + number
    end = at
    while end < len(text) and (text[end].isdigit() or text[end] == "."):
        end += 1
    return text[:at] + number + text[end:]


def kept_within_bounds(target: Target, text: str) -> object:
    """Parse `text`; a result that is sound, or a refusal that shows something, in little memory.

    A table of the interpreter's own may happen to grow meanwhile, but not twice.
    """
    allowed = MEMORY_AT_REST + MEMORY_A_BYTE * len(text.encode("utf-8", "surrogatepass"))
    result, peak = _parsed(target, text)
    if peak > allowed:
        result, peak = _parsed(target, text)
    assert peak <= allowed, f"{peak} bytes where {allowed} are allowed"
    return result


def _parsed(target: Target, text: str) -> tuple[object, int]:
    """The result, None for a refusal, and the most memory that was taken at a time."""
    gc.disable()
    tracemalloc.start()
    try:
        result: object = None
        try:
            result = target.parse(text)
            assert target.check(result), result
            for text_shown in target.shown(result):
                assert text_shown is None or text_shown.isprintable(), text_shown
        except target.refuses as error:
            sentence = str(error) or type(error).__name__
            longest = max(map(len, sentence.split("\n")))
            assert longest <= LONGEST_LINE, longest
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    return result, peak


def seconds(target: Target, text: str) -> float:
    """The least processor time of three passes."""
    times = []
    for _ in range(3):
        began = time.process_time()
        with contextlib.suppress(target.refuses):
            target.parse(text)
        times.append(time.process_time() - began)
    return min(times)
