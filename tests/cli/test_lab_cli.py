"""`autospec lab`, from the command line to what it prints."""

import json
from pathlib import Path

import pytest

from autospec.cli.app import main

DATA = Path(__file__).parent.parent / "data"
COST = str(DATA / "batched_bench_pps_not_unified.jsonl")
SAME = str(DATA / "trace_draft_same_weights.jsonl")
DROPPED = str(DATA / "trace_draft_one_layer_dropped.jsonl")
KEYS = {"plain", "best_fixed", "best_scalar", "pr17034", "vector", "oracle", "gap_closed"}


def run(capsys, *arguments):
    code = main(["lab", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("rounds", [SAME, DROPPED])
def test_json_names_every_contender(capsys, rounds):
    code, out, _ = run(capsys, "--cost", COST, "--rounds", rounds, "--json")
    found = json.loads(out)
    assert code == 0
    assert found.keys() >= KEYS
    assert found["oracle"] > found["best_scalar"] > found["best_fixed"]
    assert found["vector"] >= 0.95 * found["best_scalar"]
    assert found["plain"] == pytest.approx(15.46, abs=0.01)
    assert "NaN" not in out


def test_the_table_shows_what_each_knew(capsys):
    code, out, _ = run(capsys, "--cost", COST, "--rounds", SAME)
    assert code == 0
    for text in ("plain", "best triple", "rule of 17034", "vector", "oracle", "gap closed", "105"):
        assert text in out


def test_deeper_context_costs_more(capsys):
    plain = []
    for depth in ("0", "256", "512"):
        _, out, _ = run(capsys, "--cost", COST, "--rounds", SAME, "--depth", depth, "--json")
        plain.append(json.loads(out)["plain"])
    assert plain == sorted(plain, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cost", COST, "--rounds", "/missing"], "cannot be read"),
        (["--cost", "/missing", "--rounds", SAME], "cannot be read"),
        (["--cost", SAME, "--rounds", SAME], "without a usable"),
        (["--cost", COST, "--rounds", COST], "'p' is not a list"),
        (["--cost", COST, "--rounds", SAME, "--depth", "4096"], "at depth 4096 are needed"),
        (["--cost", COST, "--rounds", SAME, "--depth", "-1"], "depth"),
        (["--cost", COST], "--rounds"),
    ],
)
def test_mistakes_are_usage_errors(capsys, arguments, said):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"p": [], "accepted": 0}\n' * 5, "no round drafted"),
        ('{"p": [0.5], "accepted": 1}\n' * 3, "four rounds"),
    ],
)
def test_rounds_that_tell_too_little_are_refused(capsys, tmp_path, text, said):
    path = tmp_path / "rounds.jsonl"
    path.write_text(text)
    code, _, err = run(capsys, "--cost", COST, "--rounds", str(path))
    assert code == 2
    assert said in err


@pytest.fixture
def mixture(tmp_path):
    """Two short phases of a mixture, in a file."""
    data = json.loads((DATA / "mixture_moe.json").read_text())
    data["phases"] = [phase | {"tokens": 120} for phase in data["phases"][:2]]
    path = tmp_path / "mixture.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_a_mixture_is_played(capsys, mixture):
    code, out, _ = run(capsys, "--simulate", mixture, "--json")
    found = json.loads(out)
    assert code == 0
    assert [phase["text"] for phase in found["phases"]] == ["code", "chat"]
    assert found["ratio"] == pytest.approx(found["total"]["tuned"] / found["total"]["best_triple"])
    code, out, _ = run(capsys, "--simulate", mixture, "--no-round-limit")
    assert code == 0
    assert "best triple for all phases" in " ".join(out.split())


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"seed": NaN}'])
def test_a_file_that_is_no_mixture_is_refused(capsys, tmp_path, text):
    path = tmp_path / "mixture.json"
    path.write_text(text)
    code, _, err = run(capsys, "--simulate", str(path))
    assert code == 2
    assert "is not a mixture" in err
