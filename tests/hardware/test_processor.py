import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.hardware.cgroup import Limits, limits
from autospec.hardware.cpu import NumaNode, count_cpus, cpu, parse_cpuinfo
from autospec.hardware.memory import memory

X86 = """\
processor\t: {n}
model name\t: Example CPU @ 3.00GHz
physical id\t: 0
core id\t\t: {core}
flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_vnni amx_tile amx_int8 avx_vnni{more}

"""

ARM = """\
processor\t: {n}
BogoMIPS\t: 50.00
Features\t: fp asimd asimddp i8mm bf16 sve

"""


def lay(root: Path, **files: str) -> Path:
    """Write files by path, with `__` for `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_counts_cores_and_their_threads(tmp_path):
    text = "".join(X86.format(n=n, core=n // 2, more="") for n in range(8))
    seen = cpu(None, lay(tmp_path, proc__cpuinfo=text), allowed=6)
    assert seen.model == "Example CPU @ 3.00GHz"
    assert (seen.physical, seen.logical, seen.allowed, seen.usable) == (4, 8, 6, 6)


def test_names_the_instruction_sets_that_every_core_has(tmp_path):
    text = X86.format(n=0, core=0, more=" avx512_bf16") + X86.format(n=1, core=1, more="")
    assert cpu(None, lay(tmp_path, proc__cpuinfo=text)).instructions == (
        *("amx_int8", "amx_tile", "avx", "avx2", "avx512_vnni", "avx512f", "avx_vnni"),
        *("fma", "sse4_2"),
    )


def test_arm_names_are_the_common_ones_and_no_model_is_unknown(tmp_path):
    seen = cpu(None, lay(tmp_path, proc__cpuinfo=ARM.format(n=0) + ARM.format(n=1)))
    assert seen.instructions == ("bf16", "dotprod", "i8mm", "neon", "sve")
    assert (seen.model, seen.physical, seen.logical) == (None, None, 2)


@pytest.mark.parametrize(
    ("quota", "usable"), [(None, 4), (0.5, 1), (1.5, 2), (2.0, 2), (4.0, 4), (64.0, 4)]
)
def test_usable_cores_are_the_lower_of_affinity_and_quota(tmp_path, quota, usable):
    assert cpu(quota, tmp_path, allowed=4).usable == usable


def test_without_any_file_there_is_still_an_answer(tmp_path):
    seen = cpu(None, tmp_path)
    assert (seen.model, seen.physical, seen.instructions, seen.numa) == (None, None, (), ())
    assert seen.usable == len(os.sched_getaffinity(0))


def test_reads_numa_nodes_in_order(tmp_path):
    root = "sys__devices__system__node__"
    lay(
        tmp_path,
        **{
            f"{root}node10__cpulist": "4-7\n",
            f"{root}node2__cpulist": "0-3,8\n",
            f"{root}node2__meminfo": "Node 2 MemTotal:       1024 kB\n",
            f"{root}nodes__cpulist": "0\n",
        },
    )
    assert cpu(None, tmp_path).numa == (NumaNode(2, 5, 1 << 20), NumaNode(10, 4, None))


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("0", 1), ("0-3,8,10-11\n", 7), ("3-1", 0), ("x-y,1-", 0), ("-4", 0)],
)
def test_counts_a_kernel_list(text, count):
    assert count_cpus(text) == count


@given(st.text())
def test_any_cpuinfo_gives_plain_blocks(text):
    assert all("processor" in block for block in parse_cpuinfo(text))


def test_no_control_group_is_no_limit(tmp_path):
    assert limits(tmp_path) == Limits(None, None)


def test_version_2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    lay(
        tmp_path,
        proc__self__cgroup="0::/a/b\n",
        **{
            "sys__fs__cgroup__cgroup.controllers": "cpu memory\n",
            "sys__fs__cgroup__a__b__cpu.max": "max 100000\n",
            "sys__fs__cgroup__a__b__memory.max": "8589934592\n",
            "sys__fs__cgroup__a__cpu.max": "150000 100000\n",
            "sys__fs__cgroup__a__memory.max": "4294967296\n",
            "sys__fs__cgroup__memory.max": "max\n",
        },
    )
    assert limits(tmp_path) == Limits(1.5, 4 << 30)


def test_version_1_takes_the_tightest_limit_on_the_way_up(tmp_path):
    lay(
        tmp_path,
        proc__self__cgroup="4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
        **{
            "sys__fs__cgroup__cpu,cpuacct__job__cpu.cfs_quota_us": "200000\n",
            "sys__fs__cgroup__cpu,cpuacct__job__cpu.cfs_period_us": "100000\n",
            "sys__fs__cgroup__cpu,cpuacct__cpu.cfs_quota_us": "-1\n",
            "sys__fs__cgroup__cpu,cpuacct__cpu.cfs_period_us": "100000\n",
            "sys__fs__cgroup__memory__job__memory.limit_in_bytes": "1073741824\n",
            "sys__fs__cgroup__memory__memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert limits(tmp_path) == Limits(2.0, 1 << 30)


def test_in_a_container_the_mount_itself_is_the_group(tmp_path):
    lay(
        tmp_path,
        proc__self__cgroup="0::/host/path/that/is/not/mounted\n",
        **{
            "sys__fs__cgroup__cgroup.controllers": "cpu\n",
            "sys__fs__cgroup__cpu.max": "50000 100000\n",
        },
    )
    assert limits(tmp_path).cpus == 0.5


def test_a_mixed_system_has_version_2_on_the_side(tmp_path):
    lay(
        tmp_path,
        proc__self__cgroup="0::/x\n",
        **{"sys__fs__cgroup__unified__x__memory.max": "1048576\n"},
    )
    assert limits(tmp_path).memory_bytes == 1 << 20


@pytest.mark.parametrize("said", ["", "max", "1", "a b", "0 100000", "100000 0", "-1 100000"])
def test_a_quota_that_says_nothing_is_no_limit(tmp_path, said):
    lay(
        tmp_path,
        proc__self__cgroup="0::/../..\n0::/\n",
        **{
            "sys__fs__cgroup__cgroup.controllers": "",
            "sys__fs__cgroup__cpu.max": said,
            "sys__fs__cgroup__memory.max": "soup",
        },
    )
    assert limits(tmp_path) == Limits(None, None)


def test_a_memory_limit_binds_only_below_the_machine_s_own():
    free = memory(None)
    assert free.usable == free.total > 0
    assert memory(1 << 20).usable == 1 << 20
    assert memory(1 << 59).limit is None
