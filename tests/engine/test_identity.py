from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import paths
from autospec.engine import identity as module
from autospec.engine.elf import Links, read_links
from autospec.engine.identity import engine_files, file_digests, identity, mentions


def elf(
    path: Path,
    needed: tuple[str, ...] = (),
    *,
    runpath: str = "",
    rpath: str = "",
    wide: bool = True,
    order: str = "<",
    payload: bytes = b"",
) -> Path:
    """Write the smallest ELF file with a dynamic section: one load and one dynamic segment."""
    strings = b"\0"
    entries = []
    named = [(1, name) for name in needed]
    named += [(29, runpath)] if runpath else []
    named += [(15, rpath)] if rpath else []
    for tag, name in named:
        entries.append((tag, len(strings)))
        strings += name.encode() + b"\0"
    header, program = (64, 56) if wide else (52, 32)
    word = "Q" if wide else "I"
    entry = struct.Struct(order + word * 2)
    table = header + 2 * program
    at = table + (len(entries) + 3) * entry.size
    entries += [(5, at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(entry.pack(*one) for one in entries)
    size = at + len(strings)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + b"\0" * 9
    head = ident + struct.pack(
        order + "HHI" + word * 3 + "IHHHHHH",
        3, 62, 1, 0, header, 0, 0, header, program, 2, 0, 0, 0,
    )  # fmt: skip
    if wide:
        load = struct.pack(order + "IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
        link = struct.pack(order + "IIQQQQQQ", 2, 6, table, table, 0, len(dynamic), len(dynamic), 8)
    else:
        load = struct.pack(order + "IIIIIIII", 1, 0, 0, 0, size, size, 5, 4096)
        link = struct.pack(order + "IIIIIIII", 2, table, table, 0, len(dynamic), len(dynamic), 6, 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + load + link + dynamic + strings + payload)
    return path


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_widths_and_both_byte_orders_are_read(tmp_path: Path, wide: bool, order: str) -> None:
    file = elf(
        tmp_path / "x", ("liba.so", "libb.so.1"), runpath="$ORIGIN:/opt", wide=wide, order=order
    )
    assert read_links(file) == Links(("liba.so", "libb.so.1"), (), ("$ORIGIN", "/opt"))


def test_what_is_no_elf_has_no_links(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    empty = tmp_path / "empty"
    empty.touch()
    assert read_links(script) is None
    assert read_links(empty) is None
    assert read_links(tmp_path / "absent") is None
    assert read_links(tmp_path) is None


@given(cut=st.integers(0, 400), at=st.integers(0, 399), junk=st.binary(max_size=16))
def test_a_damaged_elf_is_survived(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, junk: bytes
) -> None:
    file = tmp_path_factory.mktemp("elf") / "x"
    whole = elf(file, ("libggml.so",), runpath="$ORIGIN").read_bytes()
    damaged = (whole[:at] + junk + whole[at + len(junk) :])[:cut]
    file.write_bytes(damaged)
    links = read_links(file)
    assert links is None or len(links.needed) < 4096


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build as llama.cpp's cmake leaves it, reduced to its links."""
    folder = tmp_path / "build/bin"
    elf(folder / "llama-server", ("libllama.so.0", "libc.so.6"), runpath="$ORIGIN")
    elf(folder / "libllama.so.0.1", ("libggml.so",), runpath="${ORIGIN}")
    (folder / "libllama.so.0").symlink_to("libllama.so.0.1")
    elf(folder / "libggml.so", ("libggml-base.so",), runpath="$ORIGIN")
    elf(folder / "libggml-base.so")
    elf(folder / "libggml-cuda.so", ("libcudart.so.12",))
    elf(folder / "libllama-cli-impl.so")
    return folder


def names(server: Path) -> list[str]:
    return [path.name for path in engine_files(server)]


def test_libraries_are_followed_and_backends_counted(build: Path) -> None:
    assert names(build / "llama-server") == [
        "llama-server",
        "libggml-base.so",
        "libggml-cuda.so",
        "libggml.so",
        "libllama.so.0.1",
    ]


def test_a_link_to_the_program_finds_the_same_files(build: Path, tmp_path: Path) -> None:
    link = tmp_path / "llama-server"
    link.symlink_to(build / "llama-server")
    assert engine_files(link) == engine_files(build / "llama-server")


def test_an_old_rpath_is_inherited_by_the_libraries(tmp_path: Path) -> None:
    elf(tmp_path / "bin/llama-server", ("libllama.so",), rpath="$ORIGIN/../lib")
    elf(tmp_path / "lib/libllama.so", ("libggml-base.so",))
    elf(tmp_path / "lib/libggml-base.so")
    assert names(tmp_path / "bin/llama-server") == [
        "llama-server",
        "libggml-base.so",
        "libllama.so",
    ]


def test_a_preset_library_path_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elf(tmp_path / "bin/llama-server", ("libllama.so",))
    elf(tmp_path / "mine/libllama.so")
    assert names(tmp_path / "bin/llama-server") == ["llama-server"]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "mine"))
    assert names(tmp_path / "bin/llama-server") == ["llama-server", "libllama.so"]


def test_libraries_that_need_each_other_end(tmp_path: Path) -> None:
    elf(tmp_path / "llama-server", ("libllama.so",), runpath="$ORIGIN")
    elf(tmp_path / "libllama.so", ("libggml.so",), runpath="$ORIGIN")
    elf(tmp_path / "libggml.so", ("libllama.so",), runpath="$ORIGIN")
    assert len(engine_files(tmp_path / "llama-server")) == 3


def test_a_program_of_another_format_takes_the_libraries_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin/llama-server").write_bytes(b"\xcf\xfa\xed\xfe")
    (tmp_path / "lib/libllama.dylib").write_bytes(b"x")
    (tmp_path / "lib/libother.dylib").write_bytes(b"x")
    assert names(tmp_path / "bin/llama-server") == ["llama-server", "libllama.dylib"]


def test_the_folder_does_not_count_but_every_byte_does(build: Path, tmp_path: Path) -> None:
    first = identity(engine_files(build / "llama-server"))
    assert len(first) == 64
    copy = tmp_path / "elsewhere"
    shutil.copytree(build, copy, symlinks=True)
    assert identity(engine_files(copy / "llama-server")) == first
    for name in ("llama-server", "libllama.so.0.1", "libggml-cuda.so"):
        with (copy / name).open("ab") as file:
            file.write(b"!")
        changed = identity(engine_files(copy / "llama-server"))
        assert changed != first
        first = changed


def test_a_library_that_is_not_loaded_does_not_count(build: Path) -> None:
    first = identity(engine_files(build / "llama-server"))
    (build / "libllama-cli-impl.so").write_bytes(b"new")
    assert identity(engine_files(build / "llama-server")) == first


def test_a_string_is_found_in_the_librarys_and_not_in_backends(build: Path) -> None:
    with (build / "libggml-cuda.so").open("ab") as file:
        file.write(b"GGML_BATCH_COSTS")
    files = engine_files(build / "llama-server")
    assert not mentions(files, b"GGML_BATCH_COSTS")
    with (build / "libllama.so.0.1").open("ab") as file:
        file.write(b"GGML_BATCH_COSTS")
    assert mentions(files, b"GGML_BATCH_COSTS")
    assert not mentions((build / "absent",), b"x")


def test_a_string_across_two_reads_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 8)
    file = tmp_path / "llama-server"
    for start in range(20):
        file.write_bytes(b"-" * start + b"NEEDLE" + b"-" * 9)
        assert mentions((file,), b"NEEDLE")
        assert not mentions((file,), b"NEEDLES")


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    first = file_digests((file,))
    monkeypatch.setattr(module.hashlib, "file_digest", None)
    assert file_digests((file,)) == first


def test_a_change_that_keeps_the_size_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    first = file_digests((file,))
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert file_digests((file,)) != first


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"a": 1}', "[" * 50_000, '{"x": "zz"}'])
def test_a_spoilt_cache_costs_only_time(tmp_path: Path, junk: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    first = file_digests((file,))
    store = paths.cache() / "digests.json"
    store.write_text(junk)
    assert file_digests((file,)) == first
    assert len(json.loads(store.read_text())) == 1


def test_no_cache_folder_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    file = tmp_path / "x"
    file.write_bytes(b"one")
    assert len(file_digests((file,))[0]) == 64
