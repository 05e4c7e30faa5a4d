"""The same claims on the real engine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.engine.arguments import bench_argv, server_argv, unknown_extra
from autospec.engine.environment import child_environment
from autospec.engine.failures import ExitCause, explain_exit, speculation_fault
from autospec.engine.find import Engine, read_engine
from autospec.engine.identity import engine_files
from autospec.engine.launch import PLAIN, Endpoint, Launch, Speculation
from autospec.engine.probe import probe
from autospec.errors import EngineBroken

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels

pytestmark = pytest.mark.real

ABSENT = Path("/nowhere/absent.gguf")
SPECULATE = Speculation(("draft-simple",), n_max=4, n_min=1, p_min=0.1)


def run(argv: list[str]) -> ExitCause:
    environment, _ = child_environment(os.environ, {})
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    return explain_exit(done.returncode, (done.stdout + done.stderr).splitlines()[-50:])


def test_the_engine_is_whole(engine: Engine) -> None:
    assert engine.server.is_file()
    assert engine.batched_bench is not None
    assert engine.bench is not None
    assert len(engine.identity) == 64
    assert {"-npp", "-ntg", "-npl", "-pps", "-kvu"} <= engine.bench_flags
    assert "draft-simple" in engine.capabilities.spec_types
    assert engine.capabilities.name_of("n_max") is not None


def test_its_identity_is_stable_and_every_library_byte_counts(
    engine: Engine, tmp_path: Path
) -> None:
    copy = tmp_path / "bin"
    shutil.copytree(engine.server.resolve().parent, copy, symlinks=True)
    assert read_engine(copy / engine.server.name, "copy").identity == engine.identity
    libraries = [path for path in engine_files(copy / engine.server.name) if ".so" in path.name]
    assert bool(libraries) is engine.shared
    touched = libraries[-1] if libraries else copy / engine.server.name
    with touched.open("ab") as file:
        file.write(b"\0")
    assert read_engine(copy / engine.server.name, "copy").identity != engine.identity


def test_a_missing_library_is_named(engine: Engine, tmp_path: Path) -> None:
    if not engine.shared:
        pytest.skip("this build has no libraries that could be missing")
    alone = tmp_path / "llama-server"
    shutil.copy(engine.server.resolve(), alone)
    with pytest.raises(EngineBroken, match="shared library is missing: libllama"):
        probe(alone, ["--help"])


@pytest.mark.parametrize("speculation", [PLAIN, SPECULATE])
def test_our_command_line_is_accepted(engine: Engine, speculation: Speculation) -> None:
    launch = Launch(
        "absent",
        model=ABSENT,
        draft=ABSENT,
        context=512,
        extra=("-t", "2", "-ngl", "0", "-td", "1"),
    )
    assert unknown_extra(engine, launch.extra) == []
    cause = run(server_argv(engine, launch, speculation, Endpoint()))
    assert cause.kind == "missing_model"
    assert str(ABSENT) in cause.sentence


def test_a_socket_is_accepted(engine: Engine, isolated: Path) -> None:
    launch = Launch("absent", model=ABSENT, context=512)
    argv = server_argv(engine, launch, PLAIN, Endpoint(socket=isolated / "x.sock"))
    assert run(argv).kind == "missing_model"
    argv = server_argv(engine, launch, PLAIN, Endpoint(socket=isolated / "no/such/x.sock"))
    assert run(argv).kind == "cannot_listen"


@pytest.mark.parametrize("which", ["target", "draft"])
def test_the_benchmark_takes_the_servers_placement(engine: Engine, which: str) -> None:
    launch = Launch(
        "absent",
        model=ABSENT,
        draft=ABSENT,
        extra=(
            "-t",
            "2",
            "-fa",
            "on",
            "-ctk",
            "q8_0",
            "-ngld",
            "0",
            "-td",
            "1",
            "--jinja",
            "-lv",
            "4",
        ),
    )
    argv = bench_argv(engine, launch, which="draft" if which == "draft" else "target")
    cause = run([*argv, "-c", "64", "-npp", "8", "-ntg", "4", "-npl", "1", "-pps", "-kvu"])
    assert cause.kind in {"missing_model", "bad_model", "unknown"}
    assert "argument" not in cause.sentence
    assert str(ABSENT) in cause.sentence or "load" in cause.sentence


def test_its_words_for_a_refused_command_line_are_known(engine: Engine) -> None:
    server = str(engine.server)
    for wrong in (["--no-such-flag"], ["--ctx-size", "many"], ["--spec-type", "magic"]):
        cause = run([server, "--host", "127.0.0.1", "--port", "0", *wrong])
        assert cause.kind == "bad_flag"
    for removed in engine.capabilities.removed:
        cause = run([server, removed, "3"])
        assert cause.kind == "bad_flag"
        assert f'"{removed}": the argument has been removed' in cause.sentence


def test_a_damaged_model_is_told_from_a_missing_one(
    engine: Engine, models: DemoModels, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.gguf"
    with models.draft.open("rb") as whole:
        damaged.write_bytes(whole.read(4 << 20))
    for speculation in (PLAIN, SPECULATE):
        launch = Launch("damaged", model=damaged, draft=damaged, context=256)
        cause = run(server_argv(engine, launch, speculation, Endpoint()))
        assert cause.kind == "bad_model"
        assert "file bounds" in cause.sentence


def test_a_busy_port_is_told(engine: Engine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = Endpoint(port=taken.getsockname()[1])
        cause = run(server_argv(engine, Launch("x", model=ABSENT, context=256), PLAIN, endpoint))
    assert cause.kind == "cannot_listen"


def test_a_type_without_its_draft_is_explained_by_the_log(
    engine: Engine, models: DemoModels, free_port: int
) -> None:
    """Field case 1: it serves, and does not speculate."""
    argv = server_argv(
        engine, Launch("x", model=models.draft, context=256), SPECULATE, Endpoint(port=free_port)
    )
    environment, _ = child_environment(os.environ, {})
    lines: list[str] = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        # SIGKILL: a SIGTERM that arrives just as it starts to listen is lost in the engine.
        watchdog = threading.Timer(60, server.kill)
        watchdog.start()
        try:
            for line in server.stdout:
                lines.append(line)
                if "listening on" in line:
                    break
        finally:
            watchdog.cancel()
            server.kill()
    assert "listening on" in lines[-1]
    fault = speculation_fault(lines)
    assert fault is not None
    assert "draft" in fault
