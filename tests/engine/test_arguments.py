from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engines import recorded

from autospec.engine.arguments import (
    UnknownArgument,
    bench_argv,
    no_workers,
    server_argv,
    unknown_extra,
)
from autospec.engine.find import Engine
from autospec.engine.launch import PLAIN, Endpoint, Launch, Speculation
from autospec.errors import EngineError, EngineNotFound

TARGET, DRAFT = Path("/m/target.gguf"), Path("/m/draft.gguf")
PAIR = Launch("pair", model=TARGET, draft=DRAFT, context=4096, slots=2)
SPECULATE = Speculation(("draft-simple",), n_max=5, n_min=1, p_min=0.25)
HERE = Endpoint(port=9000)


def after(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.fixture
def newest() -> Engine:
    return recorded("spec-type-11434")


def test_a_server_is_told_everything_that_has_a_default(newest: Engine) -> None:
    argv = server_argv(newest, PAIR, SPECULATE, HERE)
    assert argv[0] == "/opt/llama/llama-server"
    assert after(argv, "--model") == str(TARGET)
    assert after(argv, "--host") == "127.0.0.1"
    assert after(argv, "--port") == "9000"
    assert after(argv, "--parallel") == "2"
    assert after(argv, "--ctx-size") == "4096"
    assert {"--metrics", "--slots"} <= set(argv)


def test_a_draft_model_alone_never_stands_for_speculation(newest: Engine) -> None:
    argv = server_argv(newest, PAIR, SPECULATE, HERE)
    assert after(argv, "--spec-type") == "draft-simple"
    assert after(argv, "--spec-draft-model") == str(DRAFT)
    assert after(argv, "--spec-draft-n-max") == "5"
    assert after(argv, "--spec-draft-n-min") == "1"
    assert after(argv, "--spec-draft-p-min") == "0.25"


def test_the_middle_generation_needs_no_type_for_a_draft_model() -> None:
    argv = server_argv(recorded("spec-draft-9093"), PAIR, SPECULATE, HERE)
    assert "--spec-type" not in argv
    assert after(argv, "--spec-draft-n-max") == "5"


def test_the_first_generation_has_names_of_its_own() -> None:
    argv = server_argv(recorded("draft-8600"), PAIR, SPECULATE, HERE)
    assert after(argv, "--draft-max") == "5"
    assert after(argv, "--draft-min") == "1"
    assert after(argv, "--draft-p-min") == "0.25"
    assert after(argv, "--model-draft") == str(DRAFT)
    assert not any(argument.startswith("--spec-") for argument in argv)


@pytest.mark.parametrize("build", ["draft-8600", "spec-draft-9093", "spec-type-11434", "ik-llama"])
def test_every_flag_passed_lives_in_that_build(build: str) -> None:
    engine = recorded(build)
    for speculation in (PLAIN, SPECULATE):
        argv = server_argv(engine, PAIR, speculation, HERE)
        assert unknown_extra(engine, argv[1:]) == []


@pytest.mark.parametrize("build", ["draft-8600", "spec-draft-9093", "spec-type-11434"])
def test_plain_decoding_loads_no_draft(build: str) -> None:
    argv = server_argv(recorded(build), PAIR, PLAIN, HERE)
    assert str(DRAFT) not in argv
    assert after(argv, "--spec-type") == "none"


def test_n_gram_types_load_no_draft_and_get_their_own_lengths(newest: Engine) -> None:
    speculation = Speculation(("ngram-mod", "ngram-simple"), n_max=24, n_min=4)
    argv = server_argv(newest, PAIR, speculation, HERE)
    assert str(DRAFT) not in argv
    assert after(argv, "--spec-type") == "ngram-mod,ngram-simple"
    assert after(argv, "--spec-ngram-mod-n-max") == "24"
    assert after(argv, "--spec-ngram-mod-n-min") == "4"
    assert after(argv, "--spec-ngram-simple-size-m") == "24"


def test_a_type_that_the_build_lacks_is_an_error_that_lists_those_it_has() -> None:
    with pytest.raises(EngineError, match="draft-eagle3") as caught:
        server_argv(recorded("draft-8600"), PAIR, Speculation(("draft-eagle3",), n_max=4), HERE)
    assert caught.value.hint is not None
    assert "ngram-simple" in caught.value.hint


def test_a_draft_by_repository_needs_a_build_that_has_the_flag(newest: Engine) -> None:
    remote = replace(PAIR, draft=None, draft_hf="me/draft")
    argv = server_argv(newest, remote, SPECULATE, HERE)
    assert after(argv, "--spec-draft-hf") == "me/draft"
    with pytest.raises(EngineError, match="draft_hf"):
        server_argv(recorded("draft-8600"), remote, SPECULATE, HERE)


def test_a_model_by_repository(newest: Engine) -> None:
    argv = server_argv(newest, Launch("far", hf="me/model:Q4_K_M"), PLAIN, HERE)
    assert after(argv, "--hf-repo") == "me/model:Q4_K_M"
    assert "--model" not in argv


def test_a_socket_takes_the_place_of_the_host(newest: Engine) -> None:
    argv = server_argv(newest, PAIR, PLAIN, Endpoint(socket=Path("/run/x.sock")))
    assert after(argv, "--host") == "/run/x.sock"
    with pytest.raises(ValueError, match=r"\.sock"):
        server_argv(newest, PAIR, PLAIN, Endpoint(socket=Path("/run/x")))


def test_keys_go_by_file(newest: Engine) -> None:
    argv = server_argv(newest, PAIR, PLAIN, Endpoint(port=1, api_key_file=Path("/run/keys")))
    assert after(argv, "--api-key-file") == "/run/keys"


def test_our_arguments_come_last_and_win(newest: Engine) -> None:
    argv = server_argv(newest, replace(PAIR, extra=("--parallel", "9")), PLAIN, HERE)
    assert argv.index("9") < len(argv) - argv[::-1].index("--parallel") - 1


def test_a_tiny_p_min_is_written_so_that_the_engine_reads_it(newest: Engine) -> None:
    argv = server_argv(newest, PAIR, replace(SPECULATE, p_min=1e-6), HERE)
    assert float(after(argv, "--spec-draft-p-min")) == 1e-6


PLACED = replace(
    PAIR,
    extra=(
        "-ngl", "99", "-fa", "on", "-ctk", "q8_0", "-ot", "exps=CPU", "--rpc", "h:1", "-t", "8",
        "-ngld", "9", "-ctkd", "q4_0", "-td", "2", "-otd", "a=CPU",
        "--jinja", "--alias", "me", "--temp", "0.7", "-lv", "4", "-kvu", "--mmproj", "p.gguf",
        "--lora", "l.gguf", "--log-file", "x.log",
    ),
)  # fmt: skip


def test_the_target_is_measured_where_it_is_served(newest: Engine) -> None:
    assert bench_argv(newest, PLACED, which="target") == [
        "/opt/llama/llama-batched-bench", "--model", str(TARGET),
        "-ngl", "99", "-fa", "on", "-ctk", "q8_0", "-ot", "exps=CPU", "--rpc", "h:1", "-t", "8",
        "--lora", "l.gguf",
    ]  # fmt: skip


def test_the_draft_is_measured_with_its_own_placement(newest: Engine) -> None:
    assert bench_argv(newest, PLACED, which="draft") == [
        "/opt/llama/llama-batched-bench", "--model", str(DRAFT),
        "-fa", "on", "--rpc", "h:1",
        "--gpu-layers", "9", "--cache-type-k", "q4_0", "--threads", "2",
        "--override-tensor", "a=CPU", "--threads-batch", "8",
    ]  # fmt: skip


def test_a_draft_without_threads_of_its_own_shares_the_targets(newest: Engine) -> None:
    launch = replace(PAIR, extra=("-t", "8", "-ngl", "99"))
    assert bench_argv(newest, launch, which="draft")[3:] == ["-t", "8"]


@pytest.mark.parametrize(
    ("extra", "batch"),
    [
        (("-t", "8", "-td", "2"), "8"),
        (("-t", "8", "-tb", "16", "-td", "2"), "16"),
        (("-t", "8", "-tb", "16", "-td", "2", "-tbd", "4"), "4"),
    ],
)
def test_a_drafts_batches_run_on_the_targets_batch_threads(
    newest: Engine, extra: tuple[str, ...], batch: str
) -> None:
    argv = bench_argv(newest, replace(PAIR, extra=extra), which="draft")
    assert after(argv, "--threads") == "2"
    named = [flag for flag in argv if flag in ("-tb", "--threads-batch")]
    assert len(named) == 1
    assert after(argv, named[0]) == batch


def test_underscores_are_written_as_the_benchmark_lists_them(newest: Engine) -> None:
    launch = replace(PAIR, extra=("--flash_attn", "on"))
    assert bench_argv(newest, launch, which="target")[3:] == ["--flash-attn", "on"]


def test_no_benchmark_and_no_draft_are_said(newest: Engine) -> None:
    with pytest.raises(EngineNotFound, match="llama-batched-bench"):
        bench_argv(replace(newest, batched_bench=None), PAIR, which="target")
    with pytest.raises(ValueError, match="no draft"):
        bench_argv(newest, Launch("alone", model=TARGET), which="draft")


def test_an_update_that_removed_flags_is_explained_in_the_engines_words(newest: Engine) -> None:
    """Field case 9: a saved recipe meets a newer build."""
    found = unknown_extra(newest, ["--draft-max", "16", "-fa", "on", "--flash-attention"])
    assert found == [
        UnknownArgument(
            0,
            "--draft-max",
            "it has been removed from this build: use --spec-draft-n-max or --spec-ngram-mod-n-max",
        ),
        UnknownArgument(4, "--flash-attention", "the nearest flag is --flash-attn"),
    ]


def test_a_new_name_finds_the_old_builds_name_for_the_same_thing() -> None:
    (found,) = unknown_extra(recorded("draft-8600"), ["--spec-draft-ngl", "9"])
    assert found.advice is not None
    assert found.advice.split()[-1] in {"-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"}


def test_malformed_lists_are_told_at_their_place(newest: Engine) -> None:
    found = unknown_extra(newest, ["stray", "-fa=on", "--temp", "0.1", "-ngl"])
    assert [(one.index, one.argument) for one in found] == [
        (0, "stray"),
        (1, "-fa=on"),
        (4, "-ngl"),
    ]


def test_a_value_that_looks_like_a_flag_is_a_value(newest: Engine) -> None:
    assert unknown_extra(newest, ["--alias", "--odd", "-s", "-1"]) == []


def test_workers_on_other_machines_are_given_to_server_and_benchmark_alike(newest: Engine) -> None:
    far = replace(PAIR, rpc=("10.0.0.2:50052", "box:1"))
    wanted = "10.0.0.2:50052,box:1"
    assert after(server_argv(newest, far, PLAIN, HERE), "--rpc") == wanted
    assert after(bench_argv(newest, far, which="target"), "--rpc") == wanted
    assert after(bench_argv(newest, far, which="draft"), "--rpc") == wanted
    assert "--rpc" not in server_argv(newest, PAIR, PLAIN, HERE)
    assert no_workers(newest, far) is None
    bare = replace(newest.capabilities, flags=newest.capabilities.flags - {"--rpc"})
    assert "no workers" in (no_workers(replace(newest, capabilities=bare), far) or "")
    assert no_workers(replace(newest, capabilities=bare), PAIR) is None
