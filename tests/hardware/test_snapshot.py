import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from autospec.cli.detect import command
from autospec.engine import devices
from autospec.engine.devices import EngineView, list_devices, view
from autospec.errors import EngineBroken, EngineNotFound
from autospec.hardware.cpu import Cpu, NumaNode
from autospec.hardware.gpu import EngineDevice, Gpu
from autospec.hardware.memory import Memory
from autospec.hardware.snapshot import Hardware, snapshot
from autospec.ui.hardware import machine

NODES = (NumaNode(0, 4, 8 << 30), NumaNode(1, 4, None))
CPU = Cpu("Example [CPU]", 4, 8, 8, 2.5, 3, ("avx2", "fma"), NODES)
MEMORY = Memory(total=31 << 30, available=20 << 30, limit=None, swap_total=1 << 30, swap_free=0)
GPU = Gpu(
    *("nvidia", 0, "NVIDIA H200", "GPU-1"),
    driver="570",
    memory_total=140 << 30,
    memory_free=100 << 30,
    power_limit=700.0,
    throttling=(),
)
MACHINE = Hardware(CPU, MEMORY, (GPU,))


def changed(**changes: object) -> str:
    gpu = {k: v for k, v in changes.items() if k in vars(GPU)}
    cpu = {k: v for k, v in changes.items() if k in vars(CPU)}
    memory = {k: v for k, v in changes.items() if k in vars(MEMORY)}
    return Hardware(replace(CPU, **cpu), replace(MEMORY, **memory), (replace(GPU, **gpu),)).key()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "Other"},
        {"usable": 2},
        {"instructions": ("avx2",)},
        {"total": 63 << 30},
        {"limit": 8 << 30},
        {"driver": "571"},
        {"name": "NVIDIA H100"},
        {"memory_total": 80 << 30},
        {"power_limit": 500.0},
    ],
)
def test_what_changes_speed_changes_the_key(changes):
    assert changed(**changes) != MACHINE.key()


@pytest.mark.parametrize(
    "changes",
    [
        {"total": (31 << 30) + (40 << 20)},
        {"available": 1},
        {"memory_free": 1},
        {"throttling": ("power cap",)},
        {"errors": ("name: GPU is lost",)},
    ],
)
def test_what_varies_with_load_does_not_change_the_key(changes):
    assert changed(**changes) == MACHINE.key()


def test_a_gpu_more_changes_the_key():
    assert replace(MACHINE, gpus=()).key() != replace(MACHINE, gpus=(GPU, GPU)).key()


def test_the_key_of_this_machine_is_stable_and_its_snapshot_is_json():
    here = snapshot()
    assert here.key() == snapshot().key()
    assert len(here.key()) == 16
    seen = json.loads(json.dumps(here.to_dict(), allow_nan=False))
    assert seen["cpu"]["usable"] >= 1
    assert seen["memory"]["total"] > 0


def test_nothing_to_see_is_still_a_snapshot(tmp_path):
    seen = snapshot(tmp_path)
    assert seen.cpu.model is None
    assert json.loads(json.dumps(seen.to_dict()))["cpu"]["model"] is None


def draw(hardware: Hardware, engine: EngineView) -> str:
    console = Console(width=140, record=True)
    with console.capture() as capture:
        console.print(machine(hardware, engine))
    return capture.get()


def test_draws_the_machine_with_everything_known():
    device = EngineDevice("RPC[h:1]", "[far] away", 1 << 30, 1 << 29)
    drawn = draw(MACHINE, EngineView("/opt/llama-server", "v1", (device,)))
    for text in ("Example [CPU]", "quota of 2.5", "NVIDIA H200", "700 W", "nothing", "140.0 GiB"):
        assert text in drawn
    for text in ("RPC[h:1]", "[far] away", "/opt/llama-server", "4 cores"):
        assert text in drawn


def test_draws_unknown_and_what_a_dying_gpu_said():
    dying = Gpu("nvidia", 0, errors=("name: GPU is lost",))
    bare = replace(MACHINE, gpus=(dying,), problems=("the NVIDIA driver says: no",))
    drawn = draw(bare, EngineView(problem="no llama-server found"))
    assert "unknown" in drawn
    for text in ("GPU is lost", "the NVIDIA driver says: no", "no llama-server found"):
        assert text in drawn


def test_detect_says_null_for_an_engine_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOSPEC_ENGINE", str(tmp_path))
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0
    seen = json.loads(result.stdout)
    assert seen["engine"]["devices"] is None
    assert "no llama-server found" in seen["engine"]["problem"]
    assert len(seen["key"]) == 16
    drawn = CliRunner().invoke(command, [])
    assert drawn.exit_code == 0
    assert "Processor" in drawn.stdout


def test_an_engine_that_was_named_and_is_not_there_is_an_error(tmp_path):
    with pytest.raises(EngineNotFound):
        view(tmp_path)


@pytest.mark.real
def test_the_engine_lists_its_devices(engine, monkeypatch):
    assert list_devices(engine) is not None
    monkeypatch.setattr(devices, "find_engine", lambda _: engine)
    seen = view()
    assert (seen.server, seen.problem) == (str(engine.server), None)


@pytest.mark.real
def test_an_engine_that_dies_when_asked_is_a_problem_said(engine, monkeypatch):
    def dies(*_: object, **__: object) -> None:
        raise EngineBroken("it died")

    monkeypatch.setattr(devices, "find_engine", lambda _: engine)
    monkeypatch.setattr(devices, "probe", dies)
    assert view().problem == "it died"
    assert view().devices is None
