"""What one build of the engine can do, read from its own help text.

Three generations of speculation flags exist:

    draft        --draft-max, --draft-min, --draft-p-min; a draft model alone switches it on
    spec-draft   --spec-draft-n-max and so on (about build 8960); a draft model still does
    spec-type    since build 9464 `--spec-type draft-simple` is needed besides the model
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from autospec.engine.help_text import Flag

Generation = Literal["draft", "spec-draft", "spec-type"]
Parameter = Literal["n_max", "n_min", "p_min", "draft", "draft_hf", "draft_layers", "spec_type"]

DRAFT_SIMPLE = "draft-simple"

_NAMES: Mapping[Parameter, tuple[str, ...]] = MappingProxyType(
    {
        "n_max": ("--spec-draft-n-max", "--draft-max"),
        "n_min": ("--spec-draft-n-min", "--draft-min"),
        "p_min": ("--spec-draft-p-min", "--draft-p-min"),
        "draft": ("--spec-draft-model", "--model-draft", "-md"),
        "draft_hf": ("--spec-draft-hf", "--hf-repo-draft", "-hfd"),
        "draft_layers": ("--spec-draft-ngl", "--gpu-layers-draft", "-ngld"),
        "spec_type": ("--spec-type",),
    }
)


@dataclass(frozen=True)
class Defaults:
    """What the engine takes where nothing is said; None where its help does not tell."""

    n_max: int | None = None
    n_min: int | None = None
    p_min: float | None = None


@dataclass(frozen=True)
class Capabilities:
    """`flags` work; `removed` are listed but refused at start, with the engine's advice.

    `values` counts the arguments that follow a flag. `spec_types` are the speculation types
    that can be asked for (`none` left out). `cost_vector`: the build reads
    `GGML_BATCH_COSTS`. `request_fields`: it honours `speculative.n_max` in a request.
    `own_tuning` names the flag by which the engine tunes itself, if it has one.
    """

    flags: frozenset[str]
    removed: Mapping[str, str]
    values: Mapping[str, int]
    spec_types: tuple[str, ...]
    generation: Generation
    defaults: Defaults
    cost_vector: bool = False
    request_fields: bool = False
    own_tuning: str | None = None

    def name_of(self, parameter: Parameter) -> str | None:
        """The flag that sets `parameter` in this build, None where it has none."""
        return next((name for name in _NAMES[parameter] if name in self.flags), None)

    def nearest(self, flag: str) -> str | None:
        """The living flag most like `flag`, None where nothing is close."""
        close = difflib.get_close_matches(flag, sorted(self.flags), n=1, cutoff=0.7)
        return close[0] if close else None


def capabilities(
    flags: Mapping[str, Flag], *, cost_vector: bool = False, request_fields: bool = False
) -> Capabilities:
    """Judge a build by its parsed help text.

    `request_fields` says that the binary mentions them; builds of the later generations do
    not act on them any more.
    """
    living = {name: flag for name, flag in flags.items() if flag.removed is None}
    types = _spec_types(living)
    if DRAFT_SIMPLE in types:
        generation: Generation = "spec-type"
    elif "--spec-draft-n-max" in living:
        generation = "spec-draft"
    else:
        generation = "draft"
    if generation != "spec-type" and ("--model-draft" in living or "-md" in living):
        types = (DRAFT_SIMPLE, *types)
    return Capabilities(
        flags=frozenset(living),
        removed=MappingProxyType(
            {name: flag.removed for name, flag in flags.items() if flag.removed is not None}
        ),
        values=MappingProxyType({name: flag.values for name, flag in living.items()}),
        spec_types=types,
        generation=generation,
        defaults=Defaults(
            n_max=_integer(_default(living, "n_max")),
            n_min=_integer(_default(living, "n_min")),
            p_min=_probability(_default(living, "p_min")),
        ),
        cost_vector=cost_vector,
        request_fields=request_fields and generation == "draft",
        own_tuning="--spec-autotune" if "--spec-autotune" in living else None,
    )


def _spec_types(flags: Mapping[str, Flag]) -> tuple[str, ...]:
    """Types as `--spec-type` lists them: `[none|ngram-cache|…]` or `none,draft-simple,…`."""
    flag = flags.get("--spec-type")
    if flag is None or flag.argument is None:
        return ()
    return _unique(
        part for part in re.findall(r"[a-z0-9][a-z0-9-]*", flag.argument) if part != "none"
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _default(flags: Mapping[str, Flag], parameter: Parameter) -> str | None:
    flag = next((flags[name] for name in _NAMES[parameter] if name in flags), None)
    return flag.default if flag else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,6}", text) else None


def _probability(text: str | None) -> float | None:
    if not text or not re.fullmatch(r"[01](\.[0-9]{1,9})?", text):
        return None
    return min(float(text), 1.0)
