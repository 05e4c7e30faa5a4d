from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autospec import __version__, paths
from autospec.calibration import store as calibrations
from autospec.calibration.result import Calibration
from autospec.config.values import Address
from autospec.daemon import doctor
from autospec.daemon.control import ControlServer
from autospec.daemon.doctor import Examination, examine, listening_fault
from autospec.daemon.engine_findings import about_calibration, about_devices
from autospec.daemon.findings import Finding, Folder, about_daemon, about_folder
from autospec.hardware.gpu import EngineDevice, Gpu
from autospec.hardware.snapshot import Hardware, snapshot
from autospec.state.store import Row, Store, Table, state_file
from autospec.tuning.cost import StepTime
from autospec.ui.doctor import summary

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

GOOD = '[models.chat]\nhf = "a/b"\ndraft_hf = "c/d"\n'
MACHINE = snapshot()
CARD = Gpu("nvidia", 0, name="RTX 3090")
CUDA = EngineDevice("CUDA0", "NVIDIA RTX 3090", 24 << 30, 23 << 30)


@pytest.fixture(autouse=True)
def processor_only(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine without GPUs and services; the fake engine is not asked for devices."""
    monkeypatch.setattr(doctor, "_units", list)
    monkeypatch.setattr(doctor, "snapshot", lambda: replace(MACHINE, gpus=(), problems=()))
    if request.node.get_closest_marker("real") is None:
        monkeypatch.setattr(doctor, "list_devices", lambda _engine: ())


@pytest.fixture
def visit(tmp_path: Path, fake_engine: FakeEngine, free_port: int) -> Callable[..., Examination]:
    """Examine a configuration (its text) with the fake engine, on a port that is free."""

    def examined(text: str = GOOD) -> Examination:
        file = tmp_path / "autospec.toml"
        if "[server]" not in text:
            text += f'[server]\nlisten = "127.0.0.1:{free_port}"\n'
        file.write_text(text)
        return examine(file, fake_engine.folder)

    return examined


def about(found: Examination, subject: str, level: str | None = None) -> list[Finding]:
    return [
        finding
        for finding in found.findings
        if finding.subject == subject and level in (None, finding.level)
    ]


def only(found: Examination, subject: str, level: str | None = None) -> Finding:
    [finding] = about(found, subject, level)
    return finding


def test_a_healthy_set_up_has_no_error_and_no_warning(visit: Callable[..., Examination]) -> None:
    found = visit()
    assert [one for one in found.findings if one.level in ("error", "warning")] == []
    assert found.ok
    assert found.applier is not None
    assert found.applier.name == "scalar"
    assert "--engine" in only(found, "engine").sentence
    assert only(found, "daemon").remedy == "autospec serve starts one"
    assert summary(found) == "nothing wrong"


def test_every_error_and_warning_says_what_to_do(
    visit: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "8")
    found = visit(GOOD + 'extra = ["--no-such"]\n')
    loud = [one for one in found.findings if one.level in ("error", "warning")]
    assert {one.subject for one in loud} == {"model chat", "environment"}
    assert all(one.remedy for one in loud)


def test_no_engine_is_an_error_and_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    found = examine(tmp_path / "a.toml", tmp_path / "nowhere")
    assert only(found, "engine").level == "error"
    assert only(found, "configuration").level == "ok"
    assert about(found, "folders")
    assert found.applier is None
    assert found.as_json()["applier"] is None


def test_an_engine_that_dies_is_named_as_such(tmp_path: Path) -> None:
    broken = tmp_path / "llama-server"
    broken.write_text("#!/bin/sh\nkill -ILL $$\n")
    broken.chmod(0o755)
    finding = only(examine(None, broken), "engine")
    assert finding.level == "error"
    assert finding.remedy is not None
    assert "build" in finding.remedy


@pytest.mark.parametrize(("draft", "level"), [("", "warning"), ('draft_hf = "c/d"\n', "error")])
def test_a_missing_benchmark_weighs_more_where_a_draft_waits_to_be_tuned(
    visit: Callable[..., Examination], fake_engine: FakeEngine, draft: str, level: str
) -> None:
    fake_engine.bench.unlink()
    finding = only(visit(f'[models.chat]\nhf = "a/b"\n{draft}'), "benchmark")
    assert finding.level == level
    assert str(fake_engine.folder) in (finding.remedy or "")


def test_every_fault_of_a_configuration_is_shown_with_its_line(
    visit: Callable[..., Examination],
) -> None:
    found = visit(GOOD + "slot = 2\nn_max = 99\n")
    faults = about(found, "configuration", "error")
    assert [fault.sentence.split(": ")[0].rsplit(":")[-1] for fault in faults] == ["4", "5"]
    assert "did you mean slots" in faults[0].sentence
    assert not found.ok


def test_no_configuration_is_a_warning_unless_one_was_named(
    tmp_path: Path, fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only(examine(None, fake_engine.folder), "configuration").level == "warning"
    missing = tmp_path / "missing.toml"
    assert only(examine(missing, fake_engine.folder), "configuration").level == "error"
    monkeypatch.setenv("AUTOSPEC_CONFIG", str(missing))
    assert only(examine(None, fake_engine.folder), "configuration").level == "error"


def test_a_junk_model_file_and_unknown_arguments_are_all_found(
    visit: Callable[..., Examination], tmp_path: Path
) -> None:
    (tmp_path / "junk.gguf").write_bytes(b"GGUF" + b"\xff" * 60)
    found = visit('[models.chat]\npath = "junk.gguf"\nextra = ["--no-such", "--nor-this"]\n')
    sentences = [finding.sentence for finding in about(found, "model chat", "error")]
    assert len(sentences) == 3
    assert "--no-such" in sentences[0]
    assert "--nor-this" in sentences[1]
    assert "junk.gguf" in sentences[2]


def test_a_type_that_this_engine_lacks_is_an_error(visit: Callable[..., Examination]) -> None:
    finding = only(visit(GOOD + 'type = "draft-eagle9"\n'), "model chat", "error")
    assert "draft-eagle9" in finding.sentence
    assert "draft-mtp" in (finding.remedy or "")


def test_stray_variables_are_named_once_and_without_their_values(
    visit: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "hunter2")
    found = visit()
    assert [one.subject for one in found.findings if "LLAMA_API_KEY" in one.sentence] == [
        "environment"
    ]
    assert "hunter2" not in json.dumps(found.as_json())


def test_a_port_that_another_program_holds_is_an_error(
    visit: Callable[..., Examination], free_port: int
) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", free_port))
        holder.listen()
        finding = only(visit(), "address chat")
    assert finding.level == "error"
    assert "another program" in finding.sentence
    assert "models.chat.listen" in (finding.remedy or "")
    assert only(visit(), "address chat").level == "ok"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (Address("192.0.2.1", 8080), "no such address"),
        (Address("a" * 70, 8080), ""),
        (Address(socket=Path("/nonexistent/a.sock")), "is missing"),
        (Address(socket=Path("/tmp/" + "x" * 200 + ".sock")), "107 bytes"),
    ],
)
def test_addresses_that_cannot_be_listened_at_say_why(address: Address, words: str) -> None:
    fault = listening_fault(address)
    assert fault
    assert words in fault


def test_a_socket_with_a_listener_is_taken_and_one_left_behind_is_not(isolated: Path) -> None:
    path = isolated / "a.sock"
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind(str(path))
        holder.listen()
        assert listening_fault(Address(socket=path)) == "another program listens there"
    assert listening_fault(Address(socket=path)) is None


def test_a_socket_by_a_name_that_the_engine_does_not_take_is_an_error(
    visit: Callable[..., Examination], isolated: Path
) -> None:
    found = visit(f'{GOOD}[server]\nlisten = "unix:{isolated}/chat"\n')
    assert not found.ok
    assert any(".sock" in one.sentence for one in about(found, "configuration", "error"))


def test_a_key_file_that_all_can_read_is_a_warning(
    visit: Callable[..., Examination], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key\n")
    keys.chmod(0o644)
    text = f'{GOOD}[server]\nlisten = "127.0.0.1:1"\napi_key_file = "{keys}"\n'
    assert only(visit(text), "keys").remedy == f"chmod 600 {keys}"
    keys.chmod(0o600)
    assert only(visit(text), "keys").level == "ok"


@pytest.mark.parametrize(
    ("mode", "ours", "writable", "level"),
    [
        (None, True, True, "ok"),
        (None, True, False, "error"),
        (0o700, True, True, "ok"),
        (0o755, True, True, "warning"),
        (0o777, True, True, "error"),
        (0o700, False, True, "warning"),
        (0o700, True, False, "error"),
    ],
)
def test_a_folder_is_judged_by_who_may_do_what(
    mode: int | None, ours: bool, writable: bool, level: str
) -> None:
    folder = Folder("state", Path("/s/autospec"), mode, ours, writable, Path("/s"))
    finding = about_folder(folder)
    assert finding.level == level
    assert (finding.remedy is None) == (level == "ok")


def test_folders_are_seen_as_they_lie_there(visit: Callable[..., Examination]) -> None:
    paths.private(paths.state()).chmod(0o755)
    paths.runtime().parent.mkdir(exist_ok=True)
    paths.runtime().write_text("a file")
    state, cache, runtime = about(visit(), "folders")
    assert "mode 0755" in state.sentence
    assert cache.level == "ok"
    assert runtime.level == "error"


def hardware(*gpus: Gpu) -> Hardware:
    return replace(MACHINE, gpus=gpus, problems=())


@pytest.mark.parametrize(
    ("gpus", "devices", "level"),
    [
        ((), (), "ok"),
        ((CARD,), (CUDA,), "ok"),
        ((), (CUDA,), "ok"),
        ((CARD,), (), "warning"),
        ((CARD,), (EngineDevice("BLAS", "OpenBLAS", 0, 0),), "warning"),
        ((CARD,), (EngineDevice("RPC0", "10.0.0.2:50052", 1, 1),), "warning"),
        ((CARD, CARD), (CUDA,), "note"),
        ((CARD,), None, "note"),
    ],
)
def test_a_gpu_that_the_engine_does_not_use_is_a_warning(
    gpus: tuple[Gpu, ...], devices: tuple[EngineDevice, ...] | None, level: str
) -> None:
    [finding] = about_devices(hardware(*gpus), devices)
    assert (finding.subject, finding.level) == ("devices", level)


def test_what_a_dying_gpu_says_is_passed_on() -> None:
    dying = replace(CARD, errors=("memory: GPU is lost",))
    first, *_ = about_devices(hardware(dying), (CUDA,))
    assert (first.level, first.sentence) == ("warning", "nvidia GPU 0: memory: GPU is lost")


CALIBRATION = Calibration(
    "key", "chat", 0.0, 60.0, "b1", 16, (StepTime(1, 0, 10.0, 0.1, 5, 1, True),)
)


@pytest.mark.parametrize(
    ("known", "earlier", "level", "words"),
    [
        (None, False, "note", "not measured yet"),
        (None, True, "note", "others now"),
        (CALIBRATION, False, "ok", "5.0 h ago, at depths 0"),
        (replace(CALIBRATION, unsure=True, remarks=("busy",)), False, "warning", "unsure: busy"),
    ],
)
def test_a_calibration_is_present_stale_unsure_or_missing(
    known: Calibration | None, earlier: bool, level: str, words: str
) -> None:
    finding = about_calibration("chat", known, 120.0, 5 * 3600.0, earlier=earlier)
    assert finding.level == level
    assert words in finding.sentence


def test_a_calibration_of_other_conditions_is_told_from_none_at_all(
    visit: Callable[..., Examination],
) -> None:
    assert "not measured yet" in only(visit(), "calibration chat").sentence
    with Store.open() as store:
        calibrations.save(store, CALIBRATION)
        store.put(Row(Table.CALIBRATIONS, "junk", "{"))
    assert "others now" in only(visit(), "calibration chat").sentence


def test_a_state_file_that_cannot_be_used_is_told_and_left_alone(
    visit: Callable[..., Examination],
) -> None:
    paths.private(paths.state())
    state_file().write_bytes(b"junk" * 999)
    found = visit()
    assert "no database" in only(found, "state", "warning").sentence
    assert "not measured yet" in only(found, "calibration chat").sentence
    assert state_file().read_bytes() == b"junk" * 999


def report(engine: Engine, **model: Any) -> dict[str, Any]:
    """What a daemon answers, as far as the doctor reads it."""
    chat = {"name": "chat", "state": "ready", "reason": "", "fault": None, "pid": 7, **model}
    return {
        "version": __version__,
        "daemon": {"pid": 6, "config": "/etc/autospec/autospec.toml"},
        "engine": {"path": str(engine.server), "identity": engine.identity},
        "models": [chat],
    }


def test_a_running_daemon_tells_of_its_models_and_owns_its_port(
    visit: Callable[..., Examination], fake_engine: FakeEngine, free_port: int
) -> None:
    engine = doctor.find_engine(fake_engine.folder)
    answer = report(engine, address=f"http://127.0.0.1:{free_port}", fault="no speculation")

    async def handler(_request: dict[str, Any]) -> dict[str, Any]:
        return answer

    async def main() -> Examination:
        server = await ControlServer.open(handler)
        try:
            return await asyncio.to_thread(visit)
        finally:
            await server.close()

    found = asyncio.run(main())
    assert only(found, "daemon").level == "ok"
    assert only(found, "address chat").sentence.endswith("is served (llama-server, pid 7)")
    assert only(found, "model chat", "warning").sentence == "no speculation"


def test_a_daemon_that_refuses_to_answer_is_a_warning(visit: Callable[..., Examination]) -> None:
    path = paths.private(paths.runtime()) / "control.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        silent.settimeout(20)

        async def main() -> Examination:
            visiting = asyncio.create_task(asyncio.to_thread(visit))
            connection, _ = await asyncio.to_thread(silent.accept)
            connection.close()
            return await visiting

        finding = only(asyncio.run(main()), "daemon")
    assert finding.level == "warning"


def test_a_daemon_with_a_failed_model_another_engine_or_another_version_is_seen(
    fake_engine: FakeEngine,
) -> None:
    engine = doctor.find_engine(fake_engine.folder)
    _, failed = about_daemon(report(engine, state="failed", reason="died 6 times"), engine)
    assert (failed.level, failed.sentence) == ("error", "failed: died 6 times")
    _, changed = about_daemon(report(engine), replace(engine, identity="f" * 64))
    assert changed.level == "warning"
    [older] = about_daemon({"version": "0.0.1"}, engine)
    assert "0.0.1" in older.sentence


@pytest.mark.real
def test_the_real_engine_and_models_are_found_sound(
    engine: Engine, models: DemoModels, tmp_path: Path, free_port: int
) -> None:
    file = tmp_path / "autospec.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{free_port}"\n'
        f'[models.demo]\npath = "{models.target}"\ndraft = "{models.draft}"\ncontext = 4096\n'
        f'[models.swapped]\npath = "{models.draft}"\ndraft = "{models.target}"\n'
    )
    found = examine(file, engine.server)
    assert found.ok
    assert found.applier is not None
    assert found.applier.name == "live"
    assert "belong together" in only(found, "model demo").sentence
    assert "not smaller" in only(found, "model swapped", "warning").sentence
    assert "draft-simple" in only(found, "speculation").sentence
    assert only(found, "benchmark").level == "ok"
    assert not state_file().exists()
