from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.help_text import MAX_LINES, Flag, parse_help

HELP = Path(__file__).parents[1] / "data/help"


def read(name: str) -> dict[str, Flag]:
    return parse_help((HELP / f"{name}.txt").read_text())


def test_every_alias_leads_to_the_same_entry() -> None:
    flags = read("spec-type-11434")
    assert flags["-ngl"] is flags["--gpu-layers"] is flags["--n-gpu-layers"]
    assert flags["-ngl"].argument == "N"
    assert flags["-ngl"].env == "LLAMA_ARG_N_GPU_LAYERS"
    assert flags["-ngl"].default == "auto"


def test_a_name_too_long_for_its_column_keeps_its_argument() -> None:
    flags = read("spec-type-11434")
    assert flags["-ot"].argument == "<tensor name pattern>=<buffer type>,..."
    assert flags["-hf"].names == ("-hf", "-hfr", "--hf-repo")
    assert flags["-hf"].argument == "<user>/<model>[:quant]"


def test_a_flag_named_in_a_wrapped_description_is_no_entry() -> None:
    flags = read("spec-type-11434")
    # "…use --spec-draft-n-max or" wraps before "--spec-ngram-mod-n-max", which has its own entry.
    assert flags["--spec-ngram-mod-n-max"].removed is None
    assert "--threads)" not in flags
    assert flags["--spec-draft-threads"].default == "same as --threads"


def test_removed_flags_carry_the_engines_advice() -> None:
    flags = read("spec-type-11434")
    assert flags["--draft-max"].removed == "use --spec-draft-n-max or --spec-ngram-mod-n-max"
    assert flags["--draft-max"].env == "LLAMA_ARG_DRAFT_MAX"
    assert flags["--spec-draft-n-max"].removed is None


def test_values_are_counted_by_placeholders_outside_brackets() -> None:
    flags = read("spec-type-11434")
    assert flags["--metrics"].values == 0
    assert flags["--flash-attn"].values == 1
    assert flags["--override-tensor"].values == 1
    assert flags["--control-vector-layer-range"].values == 2
    assert read("draft-8600")["--lora-scaled"].values == 2


def test_sections_are_remembered() -> None:
    flags = read("batched-bench-11434")
    assert flags["--temp"].section == "sampling params"
    assert flags["-pps"].section == "example-specific params"
    assert read("ik-llama")["--host"].section == "server"


def test_the_layout_with_indented_names_is_read_too() -> None:
    flags = read("ik-llama")
    assert flags["--draft-max"].default == "16"
    assert flags["--draft-max"].names == ("--draft-max", "--draft", "--draft-n")
    assert flags["-md"].argument == "FNAME"
    assert "--distribute" not in flags


def test_the_first_entry_of_a_name_wins() -> None:
    flags = parse_help("--x N      one (default: 1)\n--x M      two (default: 2)\n")
    assert flags["--x"].default == "1"


def test_overlong_lines_and_endless_texts_are_cut() -> None:
    many = "\n".join(f"--f{i}" for i in range(MAX_LINES + 10))
    assert len(parse_help(many)) == MAX_LINES
    assert parse_help("--long " + "x" * 100_000 + "\n--short N   fine") == {
        "--short": Flag(("--short",), "N")
    }


@given(st.text(max_size=400))
def test_any_text_is_survived(text: str) -> None:
    for name, flag in parse_help(text).items():
        assert name in flag.names
        assert flag.values >= 0


@given(st.text(alphabet="-abN,=<>[]() \n", max_size=400))
def test_help_like_junk_is_survived(text: str) -> None:
    for name, flag in parse_help(text).items():
        assert name.startswith("-")
        json.dumps(flag.default)
