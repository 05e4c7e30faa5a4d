"""A model file that cannot work is named in one sentence before anything is launched."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import gguf_writer as w
import pytest

from autospec.cli.app import main

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.case

Make = Callable[[Path], tuple[Path, Path | None]]
"""Writes files into a folder, and says which is the target and which the draft."""


def single(raw: bytes) -> Make:
    return lambda folder: (w.write(folder / "m.gguf", raw), None)


def shard(index: int) -> bytes:
    place = [("split.no", index), ("split.count", 2), ("split.tensors.count", 2)]
    return w.gguf([*(w.pairs() if index == 0 else []), *place], [w.tensor(f"t{index}")])


def split(*raws: bytes | None) -> Make:
    def make(folder: Path) -> tuple[Path, Path | None]:
        for n, raw in enumerate(raws, 1):
            if raw is not None:
                w.write(folder / f"m-{n:05d}-of-{len(raws):05d}.gguf", raw)
        return folder / f"m-00001-of-{len(raws):05d}.gguf", None

    return make


def pair(size: int = 128, **changes: object) -> Make:
    def make(folder: Path) -> tuple[Path, Path | None]:
        target = w.write(folder / "t.gguf", w.gguf(w.pairs(), data=4096))
        return target, w.write(folder / "d.gguf", w.gguf(w.pairs(**changes), data=size))

    return make


def itself(folder: Path) -> tuple[Path, Path | None]:
    target = w.write(folder / "m.gguf")
    return target, target


WHOLE = w.gguf(w.pairs())
REFUSED: dict[str, tuple[Make, str]] = {
    "truncated header": (single(WHOLE[:700]), "the file ends after 700 bytes"),
    "truncated data": (single(WHOLE[:-90]), "incomplete: 90 bytes short of the end of the tensor"),
    "wrong magic": (single(b"tjgg" + WHOLE), "this is no GGUF model but an old GGML file"),
    "a page": (single(b"<!DOCTYPE html><html>"), "this is no GGUF model but a web page"),
    "big-endian": (single(b"GGUF" + struct.pack(">IQQ", 3, 1, 1)), "big-endian GGUF"),
    "missing shard": (split(shard(0), None), "1 of 2 shards are missing, first"),
    "truncated shard": (split(shard(0), shard(1)[:-80]), "m-00002-of-00002.gguf: the file is inco"),
    "a shard of another": (split(shard(0), shard(0)), "is shard 1 of 2 inside, not 2 of 2"),
    "embedding model": (single(w.gguf(w.pairs(llama__pooling_type=2))), "writes no text"),
    "an adapter": (single(w.gguf(w.pairs(general__type="adapter"))), "of the kind 'adapter'"),
    "embedding draft": (pair(general__architecture="bert"), "d.gguf (bert) is made for embeddings"),
    "another vocabulary": (pair(tokenizer__ggml__model="llama"), "a BPE vocabulary and the draft"),
    "other sizes": (pair(tokens=["x"] * 900), "300 tokens and the draft 900: 600 apart"),
    "other texts": (pair(tokens=[f"y{n}" for n in range(300)]), "ids as different texts"),
}
WARNED: dict[str, tuple[Make, str]] = {
    "a draft larger than its target": (pair(size=9999), "is not smaller than the target"),
    "the target as its own draft": (itself, "the draft is the target itself"),
}


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[Make], Path]:
    def write(make: Make) -> Path:
        target, draft = make(tmp_path)
        lines = ["[models.chat]", f'path = "{target}"', *([f'draft = "{draft}"'] if draft else [])]
        file = tmp_path / "autospec.toml"
        file.write_text("\n".join(lines) + "\n")
        return file

    return write


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_work_is_refused_before_anything_is_launched(
    name: str,
    configured: Callable[[Make], Path],
    fake_engine: FakeEngine,
    capfd: pytest.CaptureFixture[str],
):
    make, says = REFUSED[name]
    config = str(configured(make))
    assert main(["check", "--config", config, "--json"]) == 4
    (note,) = json.loads(capfd.readouterr().out)["files"]
    assert says in note["sentence"]
    assert note["hint"]
    engine = str(fake_engine.folder)
    assert main(["serve", "--config", config, "--engine", engine]) == 4
    assert says in capfd.readouterr().err.replace("\n", " ")
    assert main(["doctor", "--config", config, "--engine", engine, "--json"]) == 1
    seen = json.loads(capfd.readouterr().out)["findings"]
    assert any(says in one["sentence"] and one["level"] == "error" for one in seen)
    assert fake_engine.starts() == []


@pytest.mark.parametrize("name", WARNED)
def test_a_draft_that_cannot_pay_is_warned_of(
    name: str, configured: Callable[[Make], Path], capfd: pytest.CaptureFixture[str]
):
    make, says = WARNED[name]
    assert main(["check", "--config", str(configured(make))]) == 0
    said = capfd.readouterr().out
    assert "chat: warning: the draft " in said
    assert says in said


def test_split_files_that_belong_together_are_fine(
    configured: Callable[[Make], Path], capfd: pytest.CaptureFixture[str]
):
    assert main(["check", "--config", str(configured(split(shard(0), shard(1))))]) == 0
    assert "warning" not in capfd.readouterr().out
