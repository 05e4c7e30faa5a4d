"""Requests of ours: distinct texts of several kinds, in two sets that share nothing.

The rehearsal and the demo's traffic learn from one set; the demo compares on the other.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, zip_longest
from typing import Literal

Part = Literal["learning", "evaluation"]


@dataclass(frozen=True)
class Prompt:
    """`kind` is one of code, prose, extraction, repetition, translation, question."""

    kind: str
    text: str


def prompts(part: Part) -> tuple[Prompt, ...]:
    """Every request of `part`, kinds in turn, so that any first few are of mixed kinds."""
    data = tomllib.loads(files("autospec.calibration").joinpath("prompts.toml").read_text("utf-8"))
    kinds = [[Prompt(kind, text) for text in texts] for kind, texts in data[part].items()]
    return tuple(prompt for prompt in chain(*zip_longest(*kinds)) if prompt)
