from __future__ import annotations

import time
from pathlib import Path

import pytest

from autospec.engine.probe import MAX_OUTPUT, probe
from autospec.errors import EngineBroken


def program(folder: Path, body: str, *, mode: int = 0o755) -> Path:
    path = folder / "llama-server"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


def test_both_streams_and_the_exit_code_are_returned(tmp_path: Path) -> None:
    said = probe(program(tmp_path, 'echo "out $1"; echo err >&2; exit 3'), ["--help"])
    assert said.returncode == 3
    assert said.stdout.splitlines() == ["out --help", "err"]


def test_stray_settings_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")
    said = probe(program(tmp_path, 'echo "[$LLAMA_ARG_DRAFT_MAX]"'), [])
    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -ILL $$", "instructions that this CPU does not have"),
        ("kill -SEGV $$", "SIGSEGV"),
        (
            (
                "echo 'x: error while loading shared libraries: libcudart.so.12: cannot open' >&2;"
                "exit 127"
            ),
            "shared library is missing: libcudart.so.12",
        ),
        (
            (
                'echo "x: /lib/libc.so.6: version \\`GLIBC_2.99\' not found (required by x)" >&2;'
                "exit 1"
            ),
            "newer system .GLIBC_2.99",
        ),
    ],
)
def test_a_program_that_cannot_run_here_is_named_as_such(
    tmp_path: Path, body: str, words: str
) -> None:
    with pytest.raises(EngineBroken, match=words) as caught:
        probe(program(tmp_path, body), ["--help"])
    assert caught.value.hint


def test_a_program_for_another_processor(tmp_path: Path) -> None:
    foreign = tmp_path / "llama-server"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\xf7\0" + b"\0" * 44)
    foreign.chmod(0o755)
    with pytest.raises(EngineBroken, match="no program for this machine's processor"):
        probe(foreign, [])


def test_a_file_without_the_right_to_run(tmp_path: Path) -> None:
    with pytest.raises(EngineBroken, match="may not be executed") as caught:
        probe(program(tmp_path, "true", mode=0o644), [])
    assert caught.value.hint is not None
    assert "chmod" in caught.value.hint


def test_a_loader_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    path.write_text("#!/no/such/loader\n")
    path.chmod(0o755)
    with pytest.raises(EngineBroken, match="loader that this system does not have"):
        probe(path, [])
    with pytest.raises(EngineBroken, match="cannot be started"):
        probe(tmp_path / "absent", [])


def test_a_hanging_program_is_ended_with_all_it_started(tmp_path: Path) -> None:
    path = program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(EngineBroken, match=r"did not end within 0\.5 seconds"):
        probe(path, ["--help"], timeout=0.5)
    child = int((tmp_path / "child").read_text())
    for _ in range(200):
        if not running(child):
            break
        time.sleep(0.02)
    assert not running(child)


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_program_that_closes_its_output_and_stays_is_ended_too(tmp_path: Path) -> None:
    path = program(tmp_path, "exec >&- 2>&-; exec sleep 600")
    with pytest.raises(EngineBroken, match="did not end"):
        probe(path, [], timeout=0.3)


def test_endless_talk_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(EngineBroken, match=f"more than {MAX_OUTPUT >> 20} MiB"):
        probe(program(tmp_path, "exec yes llama"), [])


def test_output_that_is_no_text_is_survived(tmp_path: Path) -> None:
    said = probe(program(tmp_path, r"printf '\377\376ok'"), [])
    assert said.stdout.endswith("ok")
