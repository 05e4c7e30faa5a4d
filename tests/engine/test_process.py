"""Programs of the engine never outlive what they were started for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping

import psutil
import pytest

from autospec.engine import process as processes
from autospec.engine.waiting import to_the_end, unless

ENV: Mapping[str, str] = {"PATH": os.environ["PATH"]}


def python(code: str) -> list[str]:
    return [sys.executable, "-ISc", textwrap.dedent(code)]


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_program_runs_to_its_end_and_gives_its_lines_its_code_and_its_last_words() -> None:
    lines: list[str] = []
    code = """
        import sys
        print("one"); print("two", end="")
        for number in range(90): print("word", number, file=sys.stderr)
        sys.exit(3)
    """
    finished = asyncio.run(processes.run(python(code), ENV, lines.append, tail_lines=2))
    assert lines == ["one", "two"]
    assert finished == processes.Finished(3, ("word 88", "word 89"))


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_cancelled_run_leaves_no_program(ignoring: bool) -> None:
    code = f"""
        import signal, time
        if {ignoring}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(3600)
    """
    started: list[psutil.Process] = []

    async def main() -> None:
        ready = asyncio.Event()
        run = processes.run(
            python(code),
            ENV,
            lambda _line: ready.set(),
            on_start=lambda pid: started.append(psutil.Process(pid)),
        )
        await unless(ready, asyncio.wait_for(run, 30))

    asyncio.run(main())
    assert gone(started[0])


def test_an_error_from_whoever_reads_ends_the_program_and_is_passed_on() -> None:
    started: list[psutil.Process] = []

    def refuse(line: str) -> None:
        raise LookupError(line)

    run = processes.run(
        python("print('x', flush=True); import time; time.sleep(3600)"),
        ENV,
        refuse,
        on_start=lambda pid: started.append(psutil.Process(pid)),
    )
    with pytest.raises(LookupError, match="x"):
        asyncio.run(run)
    assert gone(started[0])


def test_an_endless_line_comes_in_pieces_and_no_byte_is_lost() -> None:
    pieces: list[str] = []
    code = "import sys; sys.stdout.write('x' * 1_000_003 + '\\nend\\n')"
    asyncio.run(processes.run(python(code), ENV, pieces.append))
    assert pieces[-1] == "end"
    assert sum(map(len, pieces)) == 1_000_003 + 3
    assert max(map(len, pieces)) <= 1 << 18


def test_bytes_that_are_no_text_are_replaced() -> None:
    lines: list[str] = []
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\xfeb\\r\\n')"
    asyncio.run(processes.run(python(code), ENV, lines.append))
    assert lines == ["a\ufffd\ufffdb"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's own")
def test_a_program_dies_with_the_one_that_started_it() -> None:
    code = """
        import asyncio, sys
        from autospec.engine import process
        async def main():
            sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
            child = await process.start(sleeper, {})
            print(child.pid, flush=True)
            await asyncio.sleep(3600)
        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 20
    while not gone(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_is_not_there_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(processes.run(["/nonexistent/llama-server"], ENV, print))


def test_work_is_awaited_to_its_end_and_the_cancellation_follows() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append("work")

    async def main() -> None:
        task = asyncio.create_task(to_the_end(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())
    assert done == ["work"]


def test_work_is_dropped_when_the_event_comes_and_over_then() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def failing() -> None:
        raise LookupError

    async def main() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, event.set)
        await unless(event, work())
        assert seen == ["cleaned up"]
        with pytest.raises(LookupError):
            await unless(asyncio.Event(), failing())

    asyncio.run(main())
