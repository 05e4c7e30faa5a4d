"""`autospec fit`, from the command line to what it prints and writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autospec.cli.app import main

DATA = Path(__file__).parent.parent / "data"
SEED = str(DATA / "seed_curves.json")
BENCH = str(DATA / "batched_bench_pps_not_unified.jsonl")


def run(capsys, *arguments):
    code = main(["fit", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_holds_the_golden_encodings(capsys):
    code, out, _ = run(capsys, SEED, "--json")
    curves = json.loads(out)["curves"]
    assert code == 0
    assert [c["power_fit"]["draft_p_min"] for c in curves] == [
        "0.53651",
        "0.82343",
        "0.65451",
        "0.64491",
    ]
    assert [c["power_fit"]["draft_min"] for c in curves] == [1, 3, 1, 1]
    assert [c["power_fit"]["draft_max"] for c in curves] == [32, 32, 32, 16]
    assert [c["offset_fit"]["decodable"] for c in curves] == [False, False, True, False]
    assert "NaN" not in out


def test_json_tells_what_the_old_rule_loses(capsys):
    _, out, _ = run(capsys, SEED, "--json")
    half = next(r for r in json.loads(out)["curves"][0]["rules"] if r["acceptance"] == 0.5)
    assert half["pr14132"]["drafted"] == half["pr17034"]["drafted"] == 0
    assert half["optimal"]["drafted"] == 3
    assert half["optimal"]["speedup"] == pytest.approx(1.74, abs=0.005)
    assert half["old_rule_loses"] == pytest.approx(1 - 1 / 1.7426, abs=0.001)


def test_tables_show_laws_rules_warnings_and_the_curve(capsys):
    code, out, _ = run(capsys, SEED)
    assert code == 0
    for text in ("0.53651", "rule of 14132", "optimal", "1.74x", "● best at 0.8", "tokens in the"):
        assert text in out
    assert "cannot be decoded" in out
    said = " ".join(out.split())
    assert "the offset -0.1094 is negative" in said
    assert "the offset 0.0916 has one digit" in said


def test_benchmark_output_is_taken_as_it_is(capsys):
    code, out, _ = run(capsys, BENCH, "--draft-cost", "0.05", "--json")
    curves = json.loads(out)["curves"]
    assert code == 0
    assert [c["name"] for c in curves] == ["depth 0", "depth 512"]
    assert curves[0]["draft_cost"] == 0.05
    assert curves[0]["notes"] == ["batches behind the gap at 15 are left out: [16]"]


def test_a_curve_that_never_pays_still_gets_its_rules(capsys, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps({"curves": [{"name": "bad", "relative_cost": [1, 1.5, 1.2, 1.1]}]}))
    code, out, _ = run(capsys, str(path), "--json")
    (curve,) = json.loads(out)["curves"]
    assert code == 0
    assert curve["power_fit"] is None
    assert all(rule["pr14132"] is None for rule in curve["rules"])
    assert all(rule["optimal"]["speedup"] == 1 for rule in curve["rules"])
    assert "nothing to fit" in curve["notes"][0]
    code, out, _ = run(capsys, str(path))
    assert code == 0
    assert "nothing to fit" in out


def test_pictures_are_written_one_a_curve(capsys, tmp_path):
    code, _, _ = run(capsys, BENCH, "--png", str(tmp_path / "cost.png"), "--json")
    assert code == 0
    for name in ("cost-1.png", "cost-2.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_with_the_way_out(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run(capsys, BENCH, "--png", str(tmp_path / "cost.png"))
    assert code == 2
    assert "matplotlib" in err
    assert "autospec[bench]" in err


def test_a_picture_that_cannot_be_written_is_named(capsys, tmp_path):
    code, _, err = run(capsys, SEED, "--png", str(tmp_path / "missing" / "cost.png"))
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/missing"], "cannot be read"),
        ([str(DATA / "trace_draft_same_weights.jsonl")], "without a usable"),
        ([SEED, "--draft-cost", "-1"], "draft-cost"),
        ([], "FILE"),
    ],
)
def test_mistakes_are_usage_errors(capsys, arguments, said):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert said in err


def test_help_loads_nothing_heavy():
    """The module is imported for `--help`; numpy and rich must not come with it."""
    script = (
        "import sys; from autospec.cli.app import main; main(['fit', '--help']);"
        "main(['lab', '--help']);"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'scipy', 'rich', 'plotext')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
