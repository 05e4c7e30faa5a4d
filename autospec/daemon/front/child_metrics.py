"""The children's own metrics, put together on one page with a label that says whose they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?\s*)*)\})?'
    r"[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*"
)
_COMMENT = re.compile(r"# (?:HELP|TYPE) (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) .+")
_MOST_LINES = 10_000
_LONGEST_LINE = 2_000


def merged(pages: Mapping[str, bytes]) -> bytes:
    """One page from those of several models. A line that cannot be read is left out.

    The samples of a series come together, as the format asks for.
    """
    comments: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for model, page in pages.items():
        described = set(comments)
        for line in page.decode("utf-8", "replace").split("\n", _MOST_LINES)[:_MOST_LINES]:
            if len(line) > _LONGEST_LINE:
                continue
            if found := _COMMENT.fullmatch(line):
                kept = comments.setdefault(found["name"], [])
                if found["name"] not in described and line not in kept:
                    kept.append(line)
            elif (found := _SAMPLE.fullmatch(line)) and _finite(found["value"]):
                rest = (found["labels"] or "").rstrip(", \t")
                own = f'model="{model}"' + (f",{_renamed(rest)}" if rest else "")
                sample = f"{found['name']}{{{own}}} {found['value']}"
                series.setdefault(found["name"], []).append(sample)
    return "".join(f"{line}\n" for line in _in_order(comments, series)).encode()


def _in_order(comments: Mapping[str, list[str]], series: dict[str, list[str]]) -> Iterator[str]:
    """Every series after its comments; the parts of a histogram stay with their family."""
    for family, lines in comments.items():
        members = [family, *(family + part for part in ("_bucket", "_sum", "_count"))]
        samples = [line for name in members for line in series.pop(name, ())]
        if samples:
            yield from (*lines, *samples)
    for left in series.values():
        yield from left


def _renamed(labels: str) -> str:
    """A label `model` of the child's gives way to ours, as Prometheus itself would have it."""
    return re.sub(r'(^|,\s*)model="', r'\1exported_model="', labels)


def _finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
