from __future__ import annotations

from pathlib import Path

import pytest

from autospec.engine.capabilities import Capabilities, Defaults, capabilities
from autospec.engine.help_text import parse_help

HELP = Path(__file__).parents[1] / "data/help"


def able(name: str, **seen: bool) -> Capabilities:
    return capabilities(parse_help((HELP / f"{name}.txt").read_text()), **seen)


@pytest.mark.parametrize(
    ("build", "generation", "n_max", "n_min", "p_min", "draft"),
    [
        ("draft-8600", "draft", "--draft-max", "--draft-min", "--draft-p-min", "--model-draft"),
        (
            "spec-draft-9093",
            "spec-draft",
            "--spec-draft-n-max",
            "--spec-draft-n-min",
            "--spec-draft-p-min",
            "--spec-draft-model",
        ),
        (
            "spec-type-11434",
            "spec-type",
            "--spec-draft-n-max",
            "--spec-draft-n-min",
            "--spec-draft-p-min",
            "--spec-draft-model",
        ),
        ("ik-llama", "draft", "--draft-max", "--draft-min", "--draft-p-min", "--model-draft"),
    ],
)
def test_each_generation_is_told_and_named(
    build: str, generation: str, n_max: str, n_min: str, p_min: str, draft: str
) -> None:
    one = able(build)
    assert one.generation == generation
    assert one.name_of("n_max") == n_max
    assert one.name_of("n_min") == n_min
    assert one.name_of("p_min") == p_min
    assert one.name_of("draft") == draft


def test_what_a_build_lacks_has_no_name() -> None:
    old = able("draft-8600")
    assert old.name_of("draft_hf") is None
    assert able("ik-llama").name_of("spec_type") is None


def test_removed_flags_do_not_live() -> None:
    new = able("spec-type-11434")
    assert "--draft-max" not in new.flags
    assert "--draft-max" in new.removed
    assert "--draft-p-min" in new.flags
    assert "--draft-max" in able("draft-8600").flags


def test_types_are_read_in_both_notations() -> None:
    assert able("spec-type-11434").spec_types[:3] == ("draft-simple", "draft-eagle3", "draft-mtp")
    assert "none" not in able("spec-type-11434").spec_types
    old = able("spec-draft-9093").spec_types
    assert old == (
        "draft-simple",
        "ngram-cache",
        "ngram-simple",
        "ngram-map-k",
        "ngram-map-k4v",
        "ngram-mod",
    )
    assert able("ik-llama").spec_types == ("draft-simple",)


def test_the_engines_own_defaults_are_read() -> None:
    assert able("spec-type-11434").defaults == Defaults(n_max=3, n_min=0, p_min=0.0)
    assert able("draft-8600").defaults == Defaults(n_max=16, n_min=0, p_min=0.75)
    assert able("ik-llama").defaults == Defaults(n_max=16, n_min=None, p_min=0.8)


def test_a_default_that_is_no_number_stays_unknown() -> None:
    odd = parse_help("--draft-max N    x (default: nan)\n--draft-p-min P    y (default: 1e999)")
    assert capabilities(odd).defaults == Defaults()


def test_the_nearest_flag_is_a_living_one() -> None:
    new = able("spec-type-11434")
    assert new.nearest("--flash-attention") == "--flash-attn"
    assert new.nearest("--qqqqqqqq") is None


def test_an_engine_that_tunes_itself_is_named() -> None:
    assert able("ik-llama").own_tuning == "--spec-autotune"
    assert able("spec-type-11434").own_tuning is None


def test_request_fields_count_only_where_the_build_still_acts_on_them() -> None:
    assert able("draft-8600", request_fields=True).request_fields
    assert not able("spec-type-11434", request_fields=True).request_fields
    assert able("draft-8600", cost_vector=True).cost_vector
