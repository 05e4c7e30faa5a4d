"""The shared memory: the same bytes in C and Python, sealed, and read with suspicion."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.live import build, memory
from autospec.engine.live.memory import ENTRIES, PolicyFile, Reason, RingFile, State
from autospec.engine.live.policy import at_most
from autospec.engine.live.telemetry import RoundReader, live_round

pytestmark = pytest.mark.live

STRUCTURES = {
    "live_policy": memory.POLICY,
    "live_policy_file": memory.POLICY_FILE,
    "live_token": memory.TOKEN,
    "live_round": memory.ROUND,
}


@pytest.fixture
def ring() -> Iterator[RingFile]:
    with RingFile() as ring:
        yield ring


def offsets(dtype: np.dtype[np.void]) -> dict[str, int]:
    assert dtype.fields is not None
    return {name: int(place[1]) for name, place in dtype.fields.items()}


def test_c_and_python_lay_the_memory_out_alike(tmp_path: Path) -> None:
    """A program prints the offset of each field that Python has, and the numbers of layout.h."""
    lines = []
    expected = []
    for name, dtype in STRUCTURES.items():
        lines.append(f'P("%zu\\n", sizeof(struct {name}));')
        expected.append(dtype.itemsize)
        for field, offset in offsets(dtype).items():
            lines.append(f'P("%zu\\n", offsetof(struct {name}, {field}));')
            expected.append(offset)
    for field, offset in offsets(memory.RING_HEADER).items():
        lines.append(f'P("%zu\\n", offsetof(struct live_ring_file, {field}));')
        expected.append(offset)
    lines.append('P("%zu\\n", offsetof(struct live_ring_file, round));')
    lines.append('P("%zu\\n", sizeof(struct live_ring_file));')
    expected += [memory.RING_HEADER.itemsize, memory.RING_BYTES]
    numbers = {
        "LIVE_POLICY_MAGIC": memory.POLICY_MAGIC,
        "LIVE_RING_MAGIC": memory.RING_MAGIC,
        "LIVE_VERSION": memory.VERSION,
        "LIVE_SLOTS": memory.SLOTS,
        "LIVE_POSITIONS": memory.POSITIONS,
        "LIVE_LEVELS": memory.LEVELS,
        "LIVE_BUSY": memory.BUSY,
        "LIVE_DEPTHS": memory.DEPTHS,
        "LIVE_ENTRIES": memory.ENTRIES,
        "LIVE_SILENCE_NS": int(memory.SILENCE_SECONDS * 1e9),
        **{f"LIVE_{flag.name}": int(flag) for flag in memory.PolicyFlag},
        **{f"LIVE_{flag.name}": int(flag) for flag in memory.RoundFlag},
        **{f"LIVE_{state.name}": int(state) for state in State if state},
        **{f"LIVE_{reason.name}": int(reason) for reason in Reason if reason},
    }
    lines += [f'P("%llu\\n", (unsigned long long){name});' for name in numbers]
    expected += numbers.values()
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "layout.h"\n#define P printf\n'
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    compiler = build.find_compiler()
    assert compiler is not None
    program = tmp_path / "layout"
    argv = [str(compiler), "-I", str(build.FOLDER), "-o", str(program), str(source)]
    subprocess.run(argv, check=True, timeout=120)
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert list(map(int, printed.split())) == expected


def test_nobody_can_shrink_or_grow_the_files(ring: RingFile) -> None:
    with PolicyFile() as policy:
        for file in (policy, ring):
            size = os.fstat(file.descriptor).st_size
            for wrong in (0, size - 1, size + 1):
                with pytest.raises(PermissionError):
                    os.ftruncate(file.descriptor, wrong)
            seals = fcntl.fcntl(file.descriptor, fcntl.F_GET_SEALS)
            assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            assert not os.get_inheritable(file.descriptor)


def test_a_written_policy_is_whole_and_even() -> None:
    with PolicyFile() as file:
        for number in (1, 2, 3):
            file.write(at_most(number, 8).record(number))
            assert file._file["sequence"][0] == 2 * number
            assert file._file["policy"]["number"][0] == number
        with pytest.raises(ValueError, match="POLICY"):
            file.write(np.zeros(2, dtype=memory.POLICY))


def test_the_sequence_never_comes_back_to_none_yet() -> None:
    with PolicyFile() as file:
        file._file["sequence"] = 0xFFFFFFFE
        file.write(at_most(1, 8).record(1))
        assert file._file["sequence"][0] == 2


def test_a_fresh_ring_says_that_nobody_is_there(ring: RingFile) -> None:
    assert ring.status().state is State.ABSENT
    assert RoundReader(ring).take() == []


@pytest.mark.fuzz
@given(st.binary(min_size=memory.RING_HEADER.itemsize, max_size=memory.RING_HEADER.itemsize))
def test_any_header_is_read(junk: bytes) -> None:
    with RingFile() as ring:
        ring._map[: len(junk)] = junk
        reader = RoundReader(ring)
        assert ring.status().state in State
        assert reader.take() == []
        assert reader.take() == []


@pytest.mark.fuzz
@given(st.binary(min_size=memory.ROUND.itemsize, max_size=memory.ROUND.itemsize))
def test_any_entry_is_a_round_of_sensible_numbers_or_none(junk: bytes) -> None:
    seen = live_round(np.frombuffer(junk, dtype=memory.ROUND))
    if seen is not None:
        assert seen.round.accepted <= seen.round.drafted <= memory.POSITIONS
        assert all(0.0 <= p <= 1.0 for p in seen.round.p)


def test_a_full_entry_becomes_a_round() -> None:
    entry = np.zeros(1, dtype=memory.ROUND)
    entry["slot"], entry["busy"], entry["depth"], entry["policy"] = 2, 3, 40, 9
    entry["seen"], entry["drafted"], entry["accepted"] = 3, 2, 1
    entry["flags"] = int(memory.RoundFlag.OBEYED | memory.RoundFlag.CUT)
    entry["draft_ns"], entry["verify_ns"] = 2_000_000, 5_500_000
    entry["token"]["p"][0, :3] = 0.5, 0.75, 0.25
    seen = live_round(entry)
    assert seen is not None
    assert seen.round.p == (0.5, 0.75)
    assert (seen.round.cut_p, seen.round.accepted) == (0.25, 1)
    assert (seen.round.draft_ms, seen.round.verify_ms) == (2.0, 5.5)
    assert (seen.slot, seen.busy, seen.depth, seen.policy) == (2, 3, 40, 9)
    assert (seen.obeyed, seen.cut, seen.skipped) == (True, True, False)


def test_half_written_and_overwritten_entries_are_lost(ring: RingFile) -> None:
    ring._header["head"] = 3
    ring._rounds["busy"][:3] = 1
    ring._rounds["stamp"][:3] = 2, 3, 2 * ENTRIES + 6  # whole, being written, a lap later
    reader = RoundReader(ring)
    assert len(reader.take()) == 1
    assert reader.lost == 2


def test_impossible_entries_are_counted(ring: RingFile) -> None:
    ring._header["head"] = 1
    ring._rounds["stamp"][0] = 2
    ring._rounds["accepted"][0] = 5
    reader = RoundReader(ring)
    assert reader.take() == []
    assert reader.unreadable == 1
