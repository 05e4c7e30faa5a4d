"""The library is made once, privately, and only what was made is loaded."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from autospec.engine.live import build

pytestmark = pytest.mark.live


def test_it_is_compiled_once_into_a_private_folder() -> None:
    made = build.library()
    before = made.stat().st_mtime_ns
    assert build.library() == made
    assert made.stat().st_mtime_ns == before
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
    assert made.stat().st_mode & 0o222 == 0
    assert [path.name for path in made.parent.iterdir() if path.name.startswith("build-")] == []


def test_another_source_makes_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build.library()
    for name in (*build.SOURCES, *build.HEADERS):
        (tmp_path / name).write_bytes((build.FOLDER / name).read_bytes())
    with (tmp_path / "layout.h").open("a") as file:
        file.write("/* changed */\n")
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.library() != made


def _append(path: Path) -> None:
    path.chmod(0o700)
    with path.open("ab") as file:
        file.write(b"\0")


def _open_to_all(path: Path) -> None:
    path.chmod(0o777)


def _link(path: Path) -> None:
    moved = path.with_suffix(".moved")
    path.rename(moved)
    path.symlink_to(moved)


@pytest.mark.parametrize("harm", [_append, _open_to_all, _link])
def test_what_is_not_as_made_is_refused(harm: object) -> None:
    made = build.library()
    assert callable(harm)
    harm(made)
    with pytest.raises(build.LiveUnavailable, match=r"ours alone|not what was compiled") as refused:
        build.library()
    assert "remove" in str(refused.value.hint)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused() -> None:
    made = build.library()
    os.chown(made, 12345, 12345)
    with pytest.raises(build.LiveUnavailable, match="ours alone"):
        build.library()


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_FOLDERS", ("/nowhere",))
    with pytest.raises(build.LiveUnavailable, match="no C compiler") as refused:
        build.library()
    assert "gcc" in str(refused.value.hint)


def test_a_compiler_on_the_users_path_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "cc"
    trap.write_text("#!/bin/sh\ntouch $(dirname $0)/sprung\n")
    trap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CPATH", str(tmp_path))
    build.library()
    assert not (tmp_path / "sprung").exists()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*build.SOURCES, *build.HEADERS):
        (tmp_path / name).write_bytes((build.FOLDER / name).read_bytes())
    (tmp_path / "shared.c").write_text("this is no C\n")
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    with pytest.raises(build.LiveUnavailable, match=r"cannot compile .*error"):
        build.library()


def test_a_cache_that_ld_preload_cannot_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    with pytest.raises(build.LiveUnavailable, match="LD_PRELOAD"):
        build.library()


def test_another_system_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(build.LiveUnavailable, match="needs Linux"):
        build.library()
