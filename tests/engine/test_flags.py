from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.flags import DRAFT_PLACEMENT, Option, canonical, options, refuse_extra


@pytest.mark.parametrize(
    "argument",
    [
        "--host", "--port", "--port=80", "--reuse-port", "--api-prefix", "--ssl-key-file",
        "--api-key", "--api_key", "--api-key-file", "--metrics", "--slots", "--no-slots",
        "--props", "-m", "--model", "-hf", "-mu", "-md", "--model-draft", "--spec-draft-model",
        "-hfd", "-c", "--ctx-size", "--ctx_size", "-np", "--draft", "--draft-max", "--draft-p-min",
        "--spec-type", "--spec-default", "--spec-draft-n-max", "--spec-draft-sampling",
        "--spec-ngram-mod-n-max", "--no-spec-draft-backend-sampling", "--spec-autotune",
        "--spec-synth-rates", "--spec-synth-len", "--tools", "--tools-runtime", "--agent", "-ag",
        "--ui-mcp-proxy", "--webui-mcp-proxy", "--mcp-servers-config", "--mcp-servers-json",
        "--models-dir", "--models-preset", "--models-max", "--log-prompts-dir", "--log-disable",
        "--log-jsonl", "-v", "--verbose", "-hft", "--fim-qwen-7b-spec", "--gpt-oss-20b-default",
        "--help", "--version", "--list-devices", "--sleep-idle-seconds",
    ],
)  # fmt: skip
def test_owned_flags_and_holes_are_refused_with_a_reason(argument: str) -> None:
    (refusal,) = refuse_extra(["--jinja", argument])
    assert refusal.index == 1
    assert refusal.argument == argument
    assert refusal.reason


@pytest.mark.parametrize(
    "extra",
    [
        ["--mmproj", "p.gguf"], ["--mmproj-url", "https://x/p"], ["--no-mmproj"],
        ["--lora", "l.gguf"], ["--lora-scaled", "l.gguf:0.5"], ["-ot", "exps=CPU"],
        ["--override-tensor", "a.*=CPU,b=CUDA0"], ["-ngl", "99"], ["-ngl", "-1"], ["-fa", "on"],
        ["-ctk", "q8_0", "-ctv", "q8_0"], ["-ts", "3,1"], ["--chat-template", "chatml"],
        ["--chat-template-file", "x.jinja"], ["--chat-template-kwargs", '{"a": true}'],
        ["--jinja"], ["--rope-scaling", "yarn"], ["-t", "8"], ["-ub", "1024"],
        ["-hff", "x.gguf"], ["--temp", "0.7"], ["--alias", "me"], ["--fit", "off"], ["-lv", "4"],
        ["--no-agent"], ["--no-ui-mcp-proxy"], ["--spec-draft-ngl", "9"], ["-ngld", "9"],
        ["-devd", "CUDA1"], ["-ctkd", "q8_0"], ["-td", "2"], ["-Cd", "ff"], ["--prio-draft", "2"],
        ["-cd", "4096"], ["-lcs", "cache.bin"],
        ["--numa", "isolate"], ["--no-warmup"], [],
    ],
)  # fmt: skip
def test_what_concerns_the_model_and_its_place_passes(extra: list[str]) -> None:
    assert refuse_extra(extra) == []


def test_synthetic_acceptance_is_called_what_it_is() -> None:
    (refusal,) = refuse_extra(["--spec-synth-rates", "0.9"])
    assert "never to serve" in refusal.reason


@pytest.mark.parametrize("level", [["5"], ["999"], ["-1"], []])
def test_a_log_level_that_writes_prompts_is_refused(level: list[str]) -> None:
    (refusal,) = refuse_extra(["-lv", *level])
    assert "prompts" in refusal.reason


def test_every_refusal_is_reported_at_its_own_place() -> None:
    found = refuse_extra(["-t", "2", "--port", "1", "--jinja", "--tools", "all"])
    assert [(refusal.index, refusal.argument) for refusal in found] == [
        (2, "--port"),
        (5, "--tools"),
    ]


def test_a_value_without_a_flag_is_refused() -> None:
    (refusal,) = refuse_extra(["model.gguf", "-t", "2"])
    assert (refusal.index, refusal.argument) == (0, "model.gguf")


def test_options_keep_negative_numbers_as_values() -> None:
    assert list(options(["-s", "-1", "--temp=0", "x", "-fa"])) == [
        Option(0, "-s", "-s", ("-1",)),
        Option(2, "--temp", "--temp", ("0", "x")),
        Option(4, "-fa", "-fa", ()),
    ]
    assert list(options([])) == []


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("-c", "--ctx-size"),
        ("--ctx_size", "--ctx-size"),
        ("--draft-max", "--spec-draft-n-max"),
        ("-md", "--spec-draft-model"),
        ("--unheard-of", "--unheard-of"),
    ],
)
def test_names_of_all_generations_lead_to_one(written: str, name: str) -> None:
    assert canonical(written) == name


def test_a_flag_for_the_drafts_place_has_a_twin_for_a_model_alone() -> None:
    for drafts, alone in DRAFT_PLACEMENT.items():
        assert canonical(drafts) == drafts
        assert canonical(alone) == alone


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--port", "-c", "--x=1", "-1", "="])))
def test_no_owned_flag_hides_in_any_list(extra: list[str]) -> None:
    refused = {refusal.index for refusal in refuse_extra(extra)}
    for index, argument in enumerate(extra):
        if argument in ("--port", "-c"):
            assert index in refused
