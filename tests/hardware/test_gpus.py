from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.hardware.drm import drm_gpus
from autospec.hardware.gpu import EngineDevice, Gpu, parse_list_devices
from autospec.hardware.nvidia import nvidia_gpus, throttle_names

ANSWERS = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlSystemGetDriverVersion": "570.86.10",
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-1234",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150 << 30, free=149 << 30),
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1,
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:0A:00.0"),
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
}


def nvml(**changes: object) -> SimpleNamespace:
    """NVML with scripted answers; an exception among them is raised."""

    def answer(value: object):
        def call(*_: object) -> object:
            if isinstance(value, Exception):
                raise value
            return value

        return call

    return SimpleNamespace(**{name: answer(v) for name, v in (ANSWERS | changes).items()})


LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


def test_describes_an_nvidia_gpu():
    gpus, problems = nvidia_gpus(nvml())
    assert problems == []
    assert gpus == [
        Gpu(
            vendor="nvidia",
            index=0,
            name="NVIDIA H200",
            uuid="GPU-1234",
            address="00000000:0A:00.0",
            driver="570.86.10",
            memory_total=150 << 30,
            memory_free=149 << 30,
            compute_capability="9.0",
            pcie_generation=5,
            pcie_width=16,
            power_limit=700.0,
            throttling=(),
        )
    ]


@pytest.mark.parametrize("lost", [n for n in ANSWERS if n.startswith("nvmlDeviceGet")][1:])
def test_a_gpu_that_is_lost_half_way_is_still_listed_with_what_it_said(lost):
    (gpu,), problems = nvidia_gpus(nvml(**{lost: LOST}))
    assert problems == []
    assert gpu.driver == "570.86.10"
    assert len(gpu.errors) == 1
    assert "GPU is lost" in gpu.errors[0]


def test_a_gpu_that_answers_nothing_is_an_entry_of_nulls():
    dead = {name: LOST for name in ANSWERS if name.startswith("nvmlDeviceGet")}
    dead |= {"nvmlDeviceGetCount": 2, "nvmlDeviceGetHandleByIndex": "handle"}
    gpus, _ = nvidia_gpus(nvml(**dead))
    assert [(gpu.index, gpu.name, gpu.memory_total) for gpu in gpus] == [
        (0, None, None),
        (1, None, None),
    ]
    assert all(gpu.throttling is None and gpu.errors for gpu in gpus)


def test_what_a_gpu_does_not_support_is_unknown_and_no_error():
    unsupported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    (gpu,), _ = nvidia_gpus(nvml(nvmlDeviceGetEnforcedPowerLimit=unsupported))
    assert gpu.power_limit is None
    assert gpu.errors == ()


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_no_driver_is_no_problem(code):
    assert nvidia_gpus(nvml(nvmlInit=pynvml.NVMLError(code))) == ([], [])


def test_a_driver_that_does_not_match_its_library_is_a_problem():
    mismatch = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    gpus, problems = nvidia_gpus(nvml(nvmlInit=mismatch))
    assert gpus == []
    assert "version mismatch" in problems[0]


def test_a_count_that_fails_is_a_problem():
    gpus, problems = nvidia_gpus(nvml(nvmlDeviceGetCount=LOST))
    assert gpus == []
    assert "GPU is lost" in problems[0]


def test_this_machine_gives_a_clean_answer():
    gpus, problems = nvidia_gpus()
    assert all(isinstance(gpu, Gpu) for gpu in gpus)
    assert all(isinstance(problem, str) for problem in problems)


def test_names_what_holds_the_clocks_down():
    assert throttle_names(0x1) == ()
    assert throttle_names(0x1 | 0x4 | 0x40) == ("power cap", "hardware thermal slowdown")


def card(root: Path, name: str, **files: str) -> None:
    folder = root / "sys/class/drm" / name / "device"
    for file, text in files.items():
        path = folder / file.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_describes_an_amd_gpu(tmp_path):
    card(
        tmp_path,
        "card1",
        vendor="0x1002",
        device="0x744c",
        product_name="Radeon RX 7900 XTX",
        unique_id="abcdef0123456789",
        mem_info_vram_total=str(24 << 30),
        mem_info_vram_used=str(1 << 30),
        max_link_speed="16.0 GT/s PCIe",
        max_link_width="16",
        hwmon__hwmon3__power1_cap="339000000",
        uevent="DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0",
    )
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.12.12\n")
    assert drm_gpus(tmp_path) == [
        Gpu(
            vendor="amd",
            index=0,
            name="Radeon RX 7900 XTX",
            uuid="abcdef0123456789",
            address="0000:03:00.0",
            driver="amdgpu 6.12.12",
            memory_total=24 << 30,
            memory_free=23 << 30,
            pcie_generation=4,
            pcie_width=16,
            power_limit=339.0,
        )
    ]


def test_a_driver_built_into_the_kernel_has_the_kernel_s_version(tmp_path):
    card(tmp_path, "card0", vendor="0x8086", device="0x56a0", uevent="DRIVER=i915")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.18.44\n")
    (gpu,) = drm_gpus(tmp_path)
    assert (gpu.vendor, gpu.name, gpu.driver) == ("intel", "device 0x56a0", "i915 6.18.44")


def test_cards_are_counted_in_order_and_others_passed_over(tmp_path):
    for name in ("card10", "card2", "card2-DP-1", "cardinal", "renderD128"):
        card(tmp_path, name, vendor="0x1002", device=f"0x{len(name):x}")
    card(tmp_path, "card0", vendor="0x10de")
    card(tmp_path, "card3", vendor="soup")
    assert [(gpu.index, gpu.name) for gpu in drm_gpus(tmp_path)] == [
        (0, "device 0x0005"),
        (1, "device 0x0006"),
    ]


def test_a_card_that_says_nothing_is_an_entry_of_nulls(tmp_path):
    card(tmp_path, "card0", vendor="0x1002", mem_info_vram_total="-5", max_link_speed="Unknown")
    assert drm_gpus(tmp_path) == [Gpu("amd", 0)]


def test_no_cards_give_no_gpus(tmp_path):
    assert drm_gpus(tmp_path) == []


def test_reads_the_engine_s_devices_among_what_backends_say():
    said = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3080 Ti, compute capability 8.6, VMM: yes
Available devices:
  CUDA0: NVIDIA GeForce RTX 3080 Ti (11909 MiB, 11650 MiB free)
load_backend: loaded RPC backend
  Vulkan1: AMD Radeon Graphics (RADV GFX1100) (24560 MiB, 24000 MiB free)
  RPC[10.0.0.1:50052]: RPC[10.0.0.1:50052] (100 MiB, 90 MiB free)
"""
    assert parse_list_devices(said) == (
        EngineDevice("CUDA0", "NVIDIA GeForce RTX 3080 Ti", 11909 << 20, 11650 << 20),
        EngineDevice("Vulkan1", "AMD Radeon Graphics (RADV GFX1100)", 24560 << 20, 24000 << 20),
        EngineDevice("RPC[10.0.0.1:50052]", "RPC[10.0.0.1:50052]", 100 << 20, 90 << 20),
    )


def test_an_engine_without_devices_differs_from_one_that_does_not_say():
    assert parse_list_devices("Available devices:\n  (none)\n") == ()
    assert parse_list_devices("error: invalid argument: --list-devices\n") is None


@given(st.text())
def test_any_list_gives_devices_or_none(text):
    devices = parse_list_devices("Available devices:\n" + text)
    assert devices is not None
    assert all(device.name and device.memory_total >= 0 for device in devices)
