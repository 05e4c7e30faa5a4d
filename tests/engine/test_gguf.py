import os
import struct
import time
import tracemalloc
from pathlib import Path

import gguf_writer as w
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec.engine import gguf_bytes
from autospec.engine.gguf import GgufHeader, read_header
from autospec.errors import ModelError

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def refusal(path: Path, raw: bytes) -> str:
    path.write_bytes(raw)
    with pytest.raises(ModelError) as caught:
        read_header(path)
    assert caught.value.hint
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", [2, 3])
def test_says_what_the_header_says(path, version):
    raw = w.gguf(w.pairs(), version=version)
    header = read_header(w.write(path, raw))
    assert header == GgufHeader(
        path=path,
        architecture="llama",
        size_bytes=len(raw),
        tensor_count=1,
        kind="model",
        name="Tiny",
        layers=2,
        context=4096,
        embedding=64,
        vocab_size=300,
        tokenizer_model="gpt2",
        tokenizer_pre="smollm",
        tokens_digest=header.tokens_digest,
        prefix_digests=header.prefix_digests,
        bos_id=1,
        eos_id=2,
        add_bos=False,
        add_eos=None,
        file_type=1,
    )
    assert len(header.prefix_digests) == 129


def test_what_is_not_said_stays_unknown(path):
    raw = w.gguf([("general.architecture", "llama"), ("llama.block_count", "many")])
    header = read_header(w.write(path, raw))
    assert header.layers is None
    assert header.context is None
    assert header.vocab_size is None
    assert header.tokens_digest is None


def test_vocabulary_size_is_taken_from_its_key_where_there_is_no_list(path):
    raw = w.gguf([("general.architecture", "llama"), ("llama.vocab_size", 32000)])
    assert read_header(w.write(path, raw)).vocab_size == 32000


def test_the_digest_follows_the_tokens_and_the_ids(tmp_path):
    def digest(**changes: object) -> str | None:
        return read_header(w.write(tmp_path / "m.gguf", **changes)).tokens_digest

    same = digest()
    assert digest(general__name="Other", llama__block_count=9) == same
    others = {
        digest(tokens=[*w.TOKENS[:-1], "x"]),
        digest(tokens=["x", *w.TOKENS[1:]]),
        digest(tokens=["to", "ken0token1", *w.TOKENS[2:]]),
        digest(tokenizer__ggml__eos_token_id=7),
        same,
    }
    assert len(others) == 5


def test_tokens_are_the_same_wherever_the_window_ends(path, monkeypatch):
    w.write(path)
    whole = read_header(path)
    monkeypatch.setattr(gguf_bytes, "WINDOW", 5003)
    assert read_header(path) == whole


@pytest.mark.parametrize("key", ["ssm.state_size", "wkv.head_size", "shortconv.l_cache"])
def test_layers_with_a_running_state_are_recurrent(path, key):
    assert not read_header(w.write(path)).recurrent
    assert read_header(w.write(path, **{f"llama__{key}": 16})).recurrent


def test_models_for_embeddings_are_known(path):
    assert read_header(w.write(path, llama__attention__causal=False)).embeds
    assert read_header(w.write(path, llama__pooling_type=3)).embeds
    assert not read_header(w.write(path, llama__pooling_type=0)).embeds


def test_further_token_layers_count_only_when_their_tensors_are_there(path):
    keys = w.pairs(llama__nextn_predict_layers=1)
    assert read_header(w.write(path, w.gguf(keys))).has_mtp is False
    tensors = [w.tensor("blk.2.nextn.eh_proj.weight")]
    assert read_header(w.write(path, w.gguf(keys, tensors))).has_mtp is True
    assert read_header(w.write(path)).has_mtp is False


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"GG", "no GGUF model"),
        (b"GGUF", "file ends after 4 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "web page"),
        (b"tjgg\3\0\0\0", "old GGML"),
        (b"PK\x03\x04rest", "zip"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
        (b"GGUF" + struct.pack("<III", 1, 1, 1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 77, 1, 1), "version 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**63), "keys are more"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 1), "tensors are more"),
    ],
)
def test_refuses_what_is_no_model_it_can_read(path, raw, says):
    assert says in refusal(path, raw)


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IIQ", w.ARRAY, kind, count) + body


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (array(w.STRING, 2**62), "list of 4611686018427387904 values"),
        (array(w.STRING, 2**22), "in the middle of its header"),
        (array(w.I32, 2**22), "in the middle of its header"),
        (array(w.ARRAY, 1, array(w.I32, 0)[4:]), "lists in a list"),
        (array(99, 1), "list of the unknown type 99"),
        (struct.pack("<I", 13), "unknown type 13"),
        (struct.pack("<IQ", w.STRING, 2**64 - 1), "in the middle of its header"),
        (array(w.STRING, 2, struct.pack("<Q", 2**40) + b"\0" * 8), "is no token"),
        (struct.pack("<IQ", w.ARRAY, 1), "list of"),
    ],
)
def test_refuses_values_that_cannot_be(path, item, says):
    assert says in refusal(path, w.gguf([*w.pairs(), ("evil", item)]))


def test_refuses_tokens_that_are_no_strings(path):
    assert "does not hold strings" in refusal(path, w.gguf(w.pairs(tokens=[1, 2, 3])))


@pytest.mark.parametrize("length", [0, 1 << 16])
def test_refuses_keys_of_no_real_length(path, length):
    assert f"a key of {length} bytes" in refusal(path, w.gguf([("k" * length, 1)]))


def test_refuses_a_key_that_occurs_twice(path):
    keys = [*w.pairs(), ("general.name", "Other")]
    assert "'general.name' occurs twice" in refusal(path, w.gguf(keys))


def test_refuses_a_model_without_an_architecture(path):
    assert "general.architecture" in refusal(path, w.gguf(w.pairs(general__architecture=None)))


def test_refuses_an_alignment_that_is_none(path):
    assert "power of two" in refusal(path, w.gguf(w.pairs(general__alignment=33)))


def test_refuses_a_header_beyond_the_limit(path, monkeypatch):
    monkeypatch.setattr(gguf_bytes, "LIMIT", 4000)
    assert "header takes more than" in refusal(path, w.gguf(w.pairs()))


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ([w.tensor("")], "name of 0 bytes"),
        ([w.tensor("n" * 1025)], "name of 1025 bytes"),
        ([w.string("t") + struct.pack("<I", 5)], "5 dimensions"),
        ([w.tensor("a"), w.tensor("output.weight", 4096, offset=128)], "16384 bytes short"),
        ([w.tensor("q", 2**60, kind=12)], "incomplete"),
    ],
)
def test_refuses_tensors_that_are_not_there(path, tensors, says):
    assert says in refusal(path, w.gguf(w.pairs(), tensors))


def test_a_tensor_of_an_unknown_type_is_no_fault(path):
    raw = w.gguf(w.pairs(), [w.tensor("new", 2**40, kind=199)])
    assert read_header(w.write(path, raw)).tensor_count == 1


def test_a_download_cut_anywhere_is_refused(path):
    raw = w.gguf(w.pairs())
    for end in range(0, len(raw), 97):
        path.write_bytes(raw[:end])
        with pytest.raises(ModelError):
            read_header(path)


def test_refuses_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in [("gone.gguf", "No such file"), (".", "not a file"), ("pipe", "not a file")]:
        with pytest.raises(ModelError, match=says):
            read_header(tmp_path / name)
    with pytest.raises(ModelError, match="null byte"):
        read_header(Path("a\0b"))


def test_text_from_a_file_cannot_act_on_the_terminal(path):
    assert read_header(w.write(path, general__name="a\x1b[2Jb\nc")).name == "a�[2Jb�c"


def shard(index: int, count: int = 3, *, of: int = 3, name: str = "a") -> bytes:
    """Shards after the first carry their place and their tensors, and nothing else."""
    place = [("split.no", index), ("split.count", count), ("split.tensors.count", of)]
    keys = [*w.pairs(llama__nextn_predict_layers=1), *place] if index == 0 else place
    return w.gguf(keys, [w.tensor(f"blk.{index}.{name}")])


def shards(folder: Path, *raws: bytes) -> Path:
    for n, raw in enumerate(raws, 1):
        w.write(folder / f"big-{n:05d}-of-{len(raws):05d}.gguf", raw)
    return folder / f"big-00001-of-{len(raws):05d}.gguf"


def test_shards_are_counted_together(tmp_path):
    raws = [shard(n) for n in range(3)]
    header = read_header(shards(tmp_path, *raws))
    assert (header.split_count, header.tensor_count) == (3, 3)
    assert header.size_bytes == sum(map(len, raws))
    assert header.vocab_size == 300


def test_layers_for_further_tokens_may_lie_in_any_shard(tmp_path):
    assert not read_header(shards(tmp_path, shard(0), shard(1), shard(2))).has_mtp
    assert read_header(shards(tmp_path, shard(0), shard(1), shard(2, name="nextn.x"))).has_mtp


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (shard(1)[:-64], r"big-00002-of-00003.gguf: the file is incomplete"),
        (shard(1)[:40], r"big-00002-of-00003.gguf: the file ends after 40 bytes"),
        (b"<!DOCTYPE html>", r"big-00002-of-00003.gguf: this is no GGUF model but a web page"),
        (shard(2), r"big-00002-of-00003.gguf is shard 3 of 3 inside, not 2 of 3"),
        (shard(1, 4), r"is shard 2 of 4 inside"),
        (w.gguf([("split.no", 1), ("split.count", 3)], []), "of 3 tensors, .* shards hold 2"),
    ],
)
def test_a_later_shard_that_does_not_belong_is_named(tmp_path, second, says):
    first = shards(tmp_path, shard(0), second, shard(2))
    with pytest.raises(ModelError, match=says) as caught:
        read_header(first)
    assert caught.value.hint


def test_a_number_of_shards_that_cannot_be_is_refused(tmp_path):
    path = w.write(tmp_path / "big-00001-of-00003.gguf", shard(0, 2**31))
    with pytest.raises(ModelError, match="2147483648 shards"):
        read_header(path)


def test_a_missing_shard_is_named(tmp_path):
    w.write(tmp_path / "big-00001-of-00003.gguf", shard(0))
    w.write(tmp_path / "big-00003-of-00003.gguf", shard(2))
    with pytest.raises(ModelError, match=r"1 of 3 shards are missing.*big-00002-of-00003"):
        read_header(tmp_path / "big-00001-of-00003.gguf")


def test_a_later_shard_points_to_the_first(tmp_path):
    w.write(tmp_path / "big-00002-of-00003.gguf", shard(1))
    with pytest.raises(ModelError, match="shard 2 of 3") as caught:
        read_header(tmp_path / "big-00002-of-00003.gguf")
    assert "big-00001-of-00003.gguf" in str(caught.value.hint)


def test_a_renamed_shard_is_refused(path):
    assert "its name does not say so" in refusal(path, shard(0))


def test_a_large_vocabulary_is_quick_and_is_not_kept(path):
    tokens = [f"<token number {i}>" for i in range(300_000)]
    w.write(path, tokens=tokens)
    began = time.process_time()
    header = read_header(path)
    assert header.vocab_size == 300_000
    assert time.process_time() - began < 20 * _cost_of_a_million_steps()


def _cost_of_a_million_steps() -> float:
    began = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - began


@pytest.mark.fuzz
@relaxed
@given(data=st.data())
def test_a_changed_byte_gives_a_header_or_a_clean_refusal(path, data):
    raw = bytearray(
        w.gguf(w.pairs(tokens=[f"t{i}" for i in range(9)], tokenizer__chat_template="x"))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    reads_or_refuses(path, bytes(raw))


@pytest.mark.fuzz
@relaxed
@given(junk=st.binary(max_size=300), magic=st.booleans())
def test_junk_gives_a_clean_refusal(path, junk, magic):
    reads_or_refuses(path, b"GGUF\3\0\0\0" + junk if magic else junk)


@pytest.mark.fuzz
@relaxed
@given(place=st.integers(0, 400), number=st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**64 - 1]))
def test_a_huge_length_anywhere_gives_a_clean_refusal(path, place, number):
    raw = bytearray(w.gguf(w.pairs()))
    raw[place : place + 8] = struct.pack("<Q", number)
    reads_or_refuses(path, bytes(raw))


def reads_or_refuses(path: Path, raw: bytes) -> None:
    """A header or a refusal with a way out, in memory that no length in the file decides."""
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        said = read_header(path).architecture
    except ModelError as error:
        said = error.hint or ""
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert said
    assert peak < 2 * gguf_bytes.WINDOW + 50 * len(raw)


@pytest.mark.real
def test_reads_the_demo_models(models):
    target, draft = read_header(models.target), read_header(models.draft)
    assert (target.architecture, draft.architecture) == ("llama", "llama")
    assert draft.layers == 30
    assert target.layers is not None
    assert target.layers > 30
    assert draft.vocab_size == target.vocab_size == 49152
    assert draft.tokens_digest == target.tokens_digest
    assert read_header(models.draft_three_dropped).layers == 27
