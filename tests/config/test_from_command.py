"""From a llama-server command line to a configuration that runs the same."""

from __future__ import annotations

import logging
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config.command_line import split_command
from autospec.config.faults import ConfigFaults
from autospec.config.from_command import (
    Imported,
    config_from_command,
    config_of_arguments,
)
from autospec.config.importing import import_command
from autospec.config.load import parse, read_toml
from autospec.config.schema import Config
from autospec.engine.launch import Launch
from autospec.errors import ConfigError


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    for name in ("t.gguf", "d.gguf", "p.gguf", "llama-server", "keys"):
        (tmp_path / name).write_text("key\n")
    return tmp_path


def imported(command: str, cwd: Path) -> tuple[Config, Imported]:
    result = config_from_command(shlex.split(command), cwd)
    return parse(result.document, path=cwd / "autospec.toml"), result


def launch(command: str, cwd: Path) -> Launch:
    config, _ = imported(command, cwd)
    ((name, model),) = config.models.items()
    return model.launch(name)


@pytest.mark.parametrize(
    "command",
    [
        "llama-server -m t.gguf -md d.gguf -c 4096 -np 2",
        "llama-server --model t.gguf --model-draft d.gguf --ctx-size 4096 --parallel 2",
        "llama-server -m t.gguf --spec-draft-model d.gguf --ctx_size 4096 --parallel 2",
        "-m t.gguf -md d.gguf -c 4096 -np 2",
        "./llama-server -m gone.gguf -md d.gguf -c 1 -np 2 -c 4096 -m t.gguf --metrics --slots",
        (
            "LLAMA_ARG_MODEL=t.gguf LLAMA_ARG_SPEC_DRAFT_MODEL=d.gguf LLAMA_ARG_CTX_SIZE=4096 "
            "LLAMA_ARG_N_PARALLEL=2 llama-server"
        ),
        (
            "LLAMA_ARG_MODEL=x LLAMA_ARG_MODEL_DRAFT=d.gguf LLAMA_ARG_CTX_SIZE=1 "
            "llama-server -m t.gguf -c 4096 -np 2"
        ),
        "env A=1 numactl --interleave=all /usr/bin/llama-server -m t.gguf -md d.gguf -c 4096 -np 2",
        "nohup my-build -m t.gguf -md d.gguf -c 4096 -np 2",
    ],
)
def test_every_way_to_say_it_gives_the_same_launch(command: str, cwd: Path) -> None:
    result = config_from_command(shlex.split(command), cwd)

    model = tomllib.loads(result.document)["models"]["t"]
    assert model == {
        "path": str(cwd / "t.gguf"),
        "draft": str(cwd / "d.gguf"),
        "context": 4096,
        "slots": 2,
    }


def test_repositories_are_kept(cwd: Path) -> None:
    command = "llama-server -hf org/Model.2-GGUF:Q4_K_M -hfd org/Small-GGUF -np 1"

    assert launch(command, cwd) == Launch(
        "Model.2-GGUF", hf="org/Model.2-GGUF:Q4_K_M", draft_hf="org/Small-GGUF"
    )


def test_all_else_passes_in_its_order_with_files_made_absolute(cwd: Path) -> None:
    command = (
        "llama-server -m t.gguf -ngl 99 -ot 'blk\\.(1|2)=CPU' --keep -1 --mmproj p.gguf "
        '--chat-template-kwargs \'{"a": "é\\n"}\' --jinja -a chat,other'
    )

    found = launch(command, cwd)

    assert found.name == "chat"
    assert found.extra == (
        *("-ngl", "99", "-ot", r"blk\.(1|2)=CPU", "--keep", "-1", "--mmproj", str(cwd / "p.gguf")),
        *("--chat-template-kwargs", '{"a": "é\\n"}', "--jinja", "-a", "chat,other"),
    )


@pytest.mark.parametrize(
    "numbers",
    [
        "--draft 16 --draft-min 2 --draft-p-min 0.6",
        "--draft-max 16 --draft-n-min 2 --draft-p-min 0.6",
        "--spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-p-min 0.6",
        "--draft-n 16 --draft_min 2 --spec-draft-p-min 0.60",
    ],
)
def test_drafting_numbers_become_comments(numbers: str, cwd: Path) -> None:
    config, result = imported(f"llama-server -m t.gguf -md d.gguf {numbers}", cwd)

    assert config.models["t"].n_max is None
    assert "you ran n_max 16, n_min 2, p_min 0.6; autospec chooses by measurement" in result.notes
    pinned = parse(
        result.document.replace("\n#", "\n").replace("\n You ran", "\n# You ran"),
        path=cwd / "autospec.toml",
    ).models["t"]
    assert (pinned.n_max, pinned.n_min, pinned.p_min) == (16, 2, 0.6)


def test_the_type_of_speculation_is_kept_unless_it_was_off(cwd: Path) -> None:
    kept, _ = imported("llama-server -m t.gguf --spec-type draft-mtp,ngram-mod", cwd)
    off, result = imported("llama-server -m t.gguf --spec-type none", cwd)

    assert kept.models["t"].type == ("draft-mtp", "ngram-mod")
    assert off.models["t"].type == "auto"
    assert '#type = "off"' in result.document


def test_a_key_is_never_written(cwd: Path) -> None:
    for command in (
        "llama-server -m t.gguf --api-key s3cret --host 0.0.0.0",
        "LLAMA_API_KEY=s3cret HF_TOKEN=s3cret llama-server -m t.gguf --host 0.0.0.0",
        "MY_SECRET=s3cret llama-server -m t.gguf -hft s3cret --api-key=s3cret --host 0.0.0.0",
    ):
        result = config_from_command(shlex.split(command), cwd)

        assert "s3cret" not in repr(result)
        assert any("key was not copied" in note for note in result.notes)
        with pytest.raises(ConfigFaults, match="api-keys does not exist"):
            parse(result.document, path=cwd / "autospec.toml")
    (cwd / "api-keys").write_text("s3cret\n")
    config = parse(result.document, path=cwd / "autospec.toml")
    assert (str(config.address("t")), config.server.api_key_file) == (
        "0.0.0.0:8080",
        cwd / "api-keys",
    )


def test_an_open_server_becomes_private_until_it_has_keys(cwd: Path) -> None:
    config, result = imported("llama-server -m t.gguf --host 0.0.0.0 --port 9000", cwd)

    assert str(config.address("t")) == "127.0.0.1:9000"
    assert '#listen = "0.0.0.0:9000"' in result.document
    assert any("needs a key file" in note for note in result.notes)


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ("", "127.0.0.1:8080"),
        ("--port 9", "127.0.0.1:9"),
        ("--host ::1", "[::1]:8080"),
        ("--host 127.0.0.1,::1", "127.0.0.1:8080"),
        ("--host 0.0.0.0 --api-key-file keys", "0.0.0.0:8080"),
    ],
)
def test_the_address_is_kept(arguments: str, address: str, cwd: Path) -> None:
    config, _ = imported(f"llama-server -m t.gguf {arguments}", cwd)

    assert str(config.address("t")) == address


def test_a_socket_is_kept(cwd: Path) -> None:
    config, _ = imported("llama-server -m t.gguf --host s.sock", cwd)

    assert config.address("t").socket == cwd / "s.sock"


def test_program_and_variables_are_kept(cwd: Path) -> None:
    config, _ = imported("CUDA_VISIBLE_DEVICES=0,1 A='x \"y' ./llama-server -m t.gguf", cwd)

    assert config.engine.path == cwd / "llama-server"
    assert config.engine.environment == {"CUDA_VISIBLE_DEVICES": "0,1", "A": 'x "y'}


def test_variables_that_stand_for_arguments_become_arguments(cwd: Path) -> None:
    command = (
        "LLAMA_ARG_FLASH_ATTN=on LLAMA_ARG_MLOCK=1 LLAMA_ARG_BATCH=64 LLAMA_ARG_JINJA=false "
        "LLAMA_ARG_N_GPU_LAYERS=9 llama-server -m t.gguf -ngl 99"
    )

    assert launch(command, cwd).extra == (
        *("--flash-attn", "on", "--mlock", "--batch-size", "64", "--no-jinja", "-ngl", "99"),
    )


def test_what_may_not_pass_is_left_out_with_the_reason(cwd: Path) -> None:
    config, result = imported("llama-server -m t.gguf --tools all --props -fa on", cwd)

    assert config.models["t"].extra == ("-fa", "on")
    assert [note.partition(":")[0] for note in result.notes if note.startswith("left out")] == [
        "left out --tools",
        "left out --props",
    ]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("llama-server", "names no model"),
        ("", "names no model"),
        ("llama-server -m", "-m needs a value"),
        ("llama-server -m t.gguf -hf a/b", "two models"),
        ("llama-server -m t.gguf stray", "2 values follow -m"),
        ("llama-server stray -m t.gguf", "belongs to no flag"),
        ("llama-server -m t.gguf -c lots", "no whole number"),
        ("llama-server -m t.gguf --draft-p-min nan", "no number"),
        ("docker run -v /m:/m image -m t.gguf", "somewhere else"),
        ("llama-server -m 't\udcff.gguf'", "not text"),
    ],
)
def test_what_llama_server_would_not_take_is_refused(command: str, message: str, cwd: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_command(shlex.split(command), cwd)


def test_a_command_is_split_as_the_shell_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELS", "/m")
    text = "llama-server \\\n  -m $MODELS/t.gguf \\\n  -a 'a b' 2>&1 | tee log"

    words, notes = split_command(text)

    assert words == ["llama-server", "-m", "/m/t.gguf", "-a", "a b"]
    assert notes == ["left out, from the shell's 2>&1 on: '2>&1' '|' tee log"]
    with pytest.raises(ConfigError, match="no closing quotation"):
        split_command("llama-server 'oops")


def test_importing_writes_a_new_file_and_says_what_is_left_to_do(cwd: Path) -> None:
    output = cwd / "new" / "autospec.toml"

    document, remarks = import_command(["llama-server -m gone.gguf -np 1 &"], cwd, output)

    assert output.read_text() == document
    assert remarks[0].startswith("left out, from the shell's &")
    assert f"{output}:7: models.gone.path: {cwd}/gone.gguf does not exist" in remarks
    with pytest.raises(ConfigError, match="exists"):
        import_command(["llama-server", "-m", "t.gguf"], cwd, output)
    assert output.read_text() == document


def test_serving_without_a_file_logs_what_was_left_out(
    cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="autospec"):
        config = config_of_arguments(["-m", "t.gguf", "--agent"], cwd)

    assert config.models["t"].path == cwd / "t.gguf"
    assert any("--agent" in record.message for record in caplog.records)
    with pytest.raises(ConfigFaults, match=r"command line:\d+: models.gone.path"):
        config_of_arguments(["-m", "gone.gguf"], cwd)


WORDS = st.sampled_from(
    [
        *("llama-server", "./llama-server", "env", "docker", "numactl", "-m", "-hf", "-md", "-hfd"),
        *("--model=x.gguf", "x.gguf", "a/b", "-c", "-np", "-1", "0", "99999999999", "--host"),
        *("::1", "0.0.0.0", "x.sock", "--port", "80", "--api-key", "--api-key-file", "A=b"),
        *("LLAMA_ARG_CTX_SIZE=9", "LLAMA_ARG_X=", "HF_TOKEN=", "--draft-max", "--spec-type"),
        *("none", "--draft-p-min", "nan", "-a", ",", "--lora", "~nobody/x", "", "--", "-", "é\x7f"),
    ]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=9), st.booleans())
def test_any_command_line_is_a_configuration_or_a_refusal(
    argv: list[str], with_model: bool
) -> None:
    words: list[Any] = [*argv, "-m", "x.gguf"] if with_model else argv
    try:
        document = config_from_command(words, Path("/cwd")).document
    except ConfigError:
        return
    assert read_toml(document, Path("a.toml"))["models"]
    try:
        config = parse(document, path=Path("/cwd/autospec.toml"))
    except ConfigFaults as error:
        assert error.faults
    else:
        assert len(config.models) == 1


@given(st.text(max_size=40))
def test_any_text_is_split_or_refused(text: str) -> None:
    try:
        words, _ = split_command(text)
    except ConfigError:
        return
    assert all(isinstance(word, str) for word in words)


def test_workers_on_other_machines_come_along(cwd: Path) -> None:
    command = "llama-server -m t.gguf -np 1 --rpc 10.0.0.2:50052,box:1 -ngl 99"
    wanted = launch(command, cwd)
    assert wanted.rpc == ("10.0.0.2:50052", "box:1")
    assert wanted.extra == ("-ngl", "99")
