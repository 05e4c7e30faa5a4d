"""Whatever lies where the state file should be, work goes on, and it is said once."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec import paths
from autospec.state.store import Row, Store, Table, state_file

pytestmark = pytest.mark.fault

ROW = Row(Table.EVENTS, "m", "{}")
PATIENCE = 60.0


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def file() -> Path:
    """The state file of an earlier life, with one row in each table."""
    with Store.open() as store:
        store.put(*(Row(table, "k", f'"{table}"') for table in Table))
    return state_file()


def works(said: list[str], path: Path | None = None) -> None:
    with Store.open(path, said.append) as store:
        assert store.newest(Table.EVENTS) == []
        assert store.put(ROW)
        assert [kept.document for kept in store.newest(Table.EVENTS)] == ["{}"]


def asides(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.aside-*"))


def sql(*statements: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        connection = sqlite3.connect(file, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return change


def overwrite(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


def link(file: Path) -> None:
    victim = file.with_name("victim")
    victim.write_text("precious")
    file.symlink_to(victim)


def foreign(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def grow(file: Path) -> None:
    with file.open("ab") as tail:
        tail.truncate(1 << 40)


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.write_bytes(b"not a database at all" * 999), "no database"),
        (lambda file: os.truncate(file, file.stat().st_size - 4096), "broken"),
        (lambda file: os.truncate(file, 5000), "broken"),
        (overwrite, "broken"),
        (sql("PRAGMA user_version = 99"), "newer version"),
        (sql("PRAGMA application_id = 1"), "another program"),
        (sql("DROP TABLE events"), "tables are others"),
        (sql("ALTER TABLE events ADD COLUMN mine TEXT"), "tables are others"),
        (sql(TRIGGER), "tables are others"),
        (sql("PRAGMA user_version = 0"), "tables are others"),
        (replace_by(foreign), "another program"),
        (replace_by(Path.mkdir), "no plain file"),
        (replace_by(os.mkfifo), "no plain file"),
        (replace_by(link), "no plain file"),
        (replace_by(lambda file: file.symlink_to("nowhere")), "no plain file"),
        (grow, "more than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_set_aside_and_a_new_file_made(
    file: Path, said: list[str], change: Callable[[Path], None], why: str
):
    change(file)
    works(said)
    assert len(said) == 1
    [aside] = [one for one in asides(file) if not one.name.endswith(("-wal", "-shm"))]
    assert aside.name in said[0]
    assert re.search(why, said[0])
    if (victim := file.with_name("victim")).exists():
        assert victim.read_text() == "precious"
    works_again: list[str] = []
    with Store.open(say=works_again.append) as store:
        assert len(store.newest(Table.EVENTS)) == 1
    assert works_again == []


def test_an_empty_file_is_a_new_one(said: list[str]):
    paths.private(state_file().parent)
    state_file().touch()
    works(said)
    assert said == []


def test_only_the_last_few_that_were_set_aside_are_left(file: Path, said: list[str]):
    for turn in range(6):
        file.write_bytes(b"junk %d" % turn * 500)
        with Store.open(say=said.append) as store:
            store.put(ROW)
    assert len(said) == 6
    assert [one.read_bytes()[:6] for one in asides(file)] == [b"junk 3", b"junk 4", b"junk 5"]


@settings(max_examples=50)
@given(st.binary(max_size=300), st.integers(0, 40_000), st.integers(0, 40_000))
def test_bytes_changed_anywhere_never_raise(junk: bytes, at: int, length: int):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.db"
        with Store.open(file) as store:
            store.put(*(Row(table, "k", "x" * 50) for table in Table))
        data = bytearray(file.read_bytes())
        data[at : at + len(junk)] = junk
        file.write_bytes(data[: len(data) - length] if at % 2 else data)
        said: list[str] = []
        for opened in (Store.reading(file, said.append), Store.open(file, said.append)):
            with opened as store:
                for table in Table:
                    store.newest(table)
        with Store.open(file, said.append) as store:
            assert store.put(ROW)
            assert store.newest(Table.EVENTS, "m", most=1)[0].document == "{}"


@settings(max_examples=50)
@given(st.binary(max_size=5000))
def test_random_files_never_raise(junk: bytes):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.db"
        file.write_bytes(junk)
        (Path(folder) / "state.db-wal").write_bytes(junk[::-1])
        works([], file)


def test_a_file_broken_while_it_is_open_stops_nothing(file: Path, said: list[str]):
    with Store.open(say=said.append) as store:
        store.put(*(Row(Table.EVENTS, "m", "x" * 900) for _ in range(300)))
        for one in (file, file.with_name("state.db-wal")):
            one.write_bytes(os.urandom(one.stat().st_size))
        for _ in range(3):
            store.newest(Table.EVENTS)
            store.put(ROW)
    with Store.open(say=said.append) as store:
        assert store.put(ROW)
        assert store.newest(Table.EVENTS, most=1)[0].document == "{}"
    assert said
    assert asides(file)


@pytest.mark.parametrize("lose", [Path.unlink, lambda file: file.rename(file.with_name("mine"))])
def test_a_file_that_vanishes_while_it_is_open_is_made_anew(
    file: Path, said: list[str], lose: Callable[[Path], object]
):
    with Store.open(say=said.append) as store:
        assert store.put(ROW)
        lose(file)
        assert store.put(ROW)
        with Store.reading() as other:
            assert len(other.newest(Table.EVENTS)) == 1
        assert store.put(ROW)
    assert said == []


def test_a_folder_that_cannot_be_made_stops_nothing(
    isolated: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
):
    (isolated / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(isolated / "file"))
    with Store.open(say=said.append) as store:
        for _ in range(3):
            assert not store.put(ROW)
            assert store.newest(Table.EVENTS) == []
    assert len(said) == 1


def test_a_full_disk_is_said_once_and_once_more_when_there_is_room(file: Path, said: list[str]):
    size = file.stat().st_size
    with Store.open(say=said.append, most_bytes=size + 8192) as store:
        for _ in range(5):
            assert not store.put(*(Row(Table.EVENTS, "m", "x" * 3000) for _ in range(50)))
        assert len(said) == 1
        assert "no room" in said[0]
        assert [kept.document for kept in store.newest(Table.EVENTS)] == ['"events"']
        assert store.put(ROW)
    assert said[1:] == [f"{file} can be written again"]


def test_a_locked_file_is_waited_for_and_then_left_alone(file: Path, said: list[str]):
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with Store.open(say=said.append) as store:
        assert not store.put(ROW)
        assert not store.put(ROW)
        assert ["locked" in one for one in said] == [True]
        other.execute("ROLLBACK")
        other.close()
        assert store.put(ROW)


def test_another_program_that_opens_the_file_for_ever_is_not_waited_for(
    file: Path, said: list[str]
):
    holder = subprocess.Popen(["flock", "--no-fork", str(file.parent), "sleep", "600"])
    try:
        deadline = time.monotonic() + PATIENCE
        free = ["flock", "-n", str(file.parent), "true"]
        while subprocess.run(free, check=False).returncode == 0:
            assert time.monotonic() < deadline
        with Store.open(say=said.append) as store:
            assert not store.put(ROW)
    finally:
        holder.terminate()
        holder.wait()
    assert len(said) == 1


def in_a_child(work: Callable[[], bool]) -> bool:
    """Run `work` in a process of its own, whose rights and limits it may change."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(write, b"1" if work() else b"0")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as answer:
        return answer.read() == b"1"


def test_a_disk_that_takes_no_more_bytes_stops_nothing(file: Path):
    def work() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        said: list[str] = []
        with Store.open(say=said.append) as store:
            done = [store.put(*([Row(Table.EVENTS, "m", "x" * 9000)] * 30)) for _ in range(3)]
            return done == [False] * 3 and len(said) == 1 and store.newest(Table.EVENTS) != []

    assert in_a_child(work)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_what_another_user_owns_is_set_aside_or_only_read(file: Path):
    def work(*, folder_too: bool) -> bool:
        folder = file.parent
        for one in (folder, *folder.parents[:3]):
            one.chmod(0o755)
        file.chmod(0o644)
        if not folder_too:
            os.chown(folder, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        said: list[str] = []
        with Store.open(say=said.append) as store:
            found, done = store.newest(Table.EVENTS), store.put(ROW)
            return len(said) == 1 and (bool(found), done) == (folder_too, not folder_too)

    assert in_a_child(lambda: work(folder_too=True))
    assert in_a_child(lambda: work(folder_too=False))


def write_many(key: str, times: int) -> None:
    with Store.open() as store:
        for turn in range(times):
            assert store.put(Row(Table.EPOCHS, key, str(turn), name=str(turn % 5)))


def test_two_processes_at_once_lose_nothing(isolated: Path):
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_many, args=(key, 60)) for key in "ab"]
    for one in writers:
        one.start()
    for one in writers:
        one.join(PATIENCE)
    assert [one.exitcode for one in writers] == [0, 0]
    with Store.open() as store:
        for key in "ab":
            found = [kept.document for kept in store.newest(Table.EPOCHS, key)]
            assert found == ["59", "58", "57", "56", "55"]


def mend(barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    with Store.open() as store:
        assert store.put(ROW)


def test_two_processes_that_find_a_broken_file_set_it_aside_once(file: Path):
    file.write_bytes(b"junk" * 999)
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(3)
    openers = [spawn.Process(target=mend, args=(barrier,)) for _ in range(3)]
    for one in openers:
        one.start()
    for one in openers:
        one.join(PATIENCE)
    assert [one.exitcode for one in openers] == [0, 0, 0]
    assert len(asides(file)) == 1
    with Store.open() as store:
        assert len(store.newest(Table.EVENTS)) == 3


WRITER = """
from autospec.state.store import Row, Store, Table
store = Store.open()
turn = 0
while True:
    assert store.put(*(Row(Table.EVENTS, "m", str(turn)) for _ in range(20)))
    print(turn, flush=True)
    turn += 1
"""


def test_a_writer_killed_at_any_moment_leaves_whole_transactions(isolated: Path):
    for turn in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            told = [int(writer.stdout.readline()) for _ in range(3 + turn)][-1]
            writer.kill()
        said: list[str] = []
        with Store.open(say=said.append) as store:
            found = [int(kept.document) for kept in store.newest(Table.EVENTS)]
        assert said == []
        assert found[0] >= told
        assert found.count(found[0]) % 20 == 0
    assert asides(state_file()) == []


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    before = set(Path("/proc/self/fd").iterdir())
    yield
    left = set(Path("/proc/self/fd").iterdir()) - before
    names = [str(link.readlink()) for link in left if os.path.lexists(link)]
    assert [name for name in names if "state" in name] == []
