"""systemd is told, by the protocol of sd_notify(3), and a stuck owner is not covered up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import PATIENCE, Served

from autospec.daemon.events import Events
from autospec.daemon.notify import Notifier
from autospec.daemon.pulse import Pulse, heartbeat, stuck

if TYPE_CHECKING:
    from conftest import FakeEngine


class Systemd:
    """Its end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(10)
        self._socket.bind(address.replace("@", "\0", 1))

    def heard(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def hears(self, *wanted: str) -> None:
        """Wait until each of these was said, in any order and among others."""
        missing, deadline = set(wanted), time.monotonic() + PATIENCE
        while missing:
            assert time.monotonic() < deadline, missing
            missing -= {f"{name}={value}" for name, value in self.heard().items()}

    def hears_nothing(self) -> bool:
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(10)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, isolated: Path) -> Iterator[Systemd]:
    name = f"{isolated}/notify"
    listening = Systemd(name if request.param == "path" else f"@{name}")
    yield listening
    listening.close()


@pytest.fixture
def notifier(systemd: Systemd) -> Iterator[Notifier]:
    told = Notifier.take({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "30000000"})
    yield told
    told.close()


def test_each_word_arrives_as_systemd_expects_it(notifier: Notifier, systemd: Systemd) -> None:
    notifier.ready()
    assert systemd.heard() == {"READY": "1"}
    notifier.stopping()
    assert systemd.heard() == {"STOPPING": "1"}
    notifier.beat()
    assert systemd.heard() == {"WATCHDOG": "1"}
    notifier.extend(2.5)
    assert systemd.heard() == {"EXTEND_TIMEOUT_USEC": "2500000"}


def test_a_reload_carries_the_monotonic_time(notifier: Notifier, systemd: Systemd) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    heard = systemd.heard()
    assert heard["RELOADING"] == "1"
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert before <= int(heard["MONOTONIC_USEC"]) <= after


def test_a_status_is_one_line_and_sent_once(notifier: Notifier, systemd: Systemd) -> None:
    notifier.status("chat: ready\nREADY=1")
    assert systemd.heard() == {"STATUS": "chat: ready READY=1"}
    notifier.status("chat:  ready READY=1")
    assert systemd.hears_nothing()


def test_the_variables_are_taken_so_that_no_child_speaks_for_us(systemd: Systemd) -> None:
    ours = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "9000000", "HOME": "/"}
    ours["WATCHDOG_PID"] = str(os.getpid())
    notifier = Notifier.take(ours)
    assert ours == {"HOME": "/"}
    assert notifier.period == 9
    assert notifier.feed_every == 3


@pytest.mark.parametrize(
    "watchdog",
    [
        {"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "me"},
        {},
    ],
)
def test_a_watchdog_that_is_not_meant_for_us_is_not_fed(
    systemd: Systemd, watchdog: dict[str, str]
) -> None:
    notifier = Notifier.take({"NOTIFY_SOCKET": systemd.address, **watchdog})
    assert notifier.feed_every is None
    notifier.beat()
    assert systemd.hears_nothing()


@pytest.mark.parametrize("address", [None, "", "@", "vsock:2:1234", "relative", "/no/such/socket"])
def test_without_a_socket_nothing_happens(address: str | None) -> None:
    notifier = Notifier(address, 1.0)
    for tell in (notifier.ready, notifier.reloading, notifier.stopping, notifier.beat):
        tell()
    notifier.status("still here")
    notifier.close()


@given(st.text())
def test_any_address_is_survived(address: str) -> None:
    notifier = Notifier(address.replace("\0", ""))
    notifier.ready()
    notifier.close()


def test_an_owner_that_breaks_its_promise_is_found() -> None:
    slow, quick, resting = Pulse("slow"), Pulse("quick"), Pulse("resting")
    now = time.monotonic()
    slow.promise(10, "loading")
    quick.promise(2, "reading counters")
    assert stuck([slow, quick, resting], now) is None
    assert stuck([slow, quick, resting], now + 5) is quick
    assert stuck([slow, quick, resting], now + 50) is quick
    quick.rest()
    assert stuck([slow, quick, resting], now + 50) is slow
    assert slow.doing == "loading"
    slow.promise(100, "draining")
    assert stuck([slow, quick, resting], now + 50) is None
    assert stuck([], now) is None


def test_the_heart_stops_feeding_while_an_owner_is_stuck(
    notifier: Notifier, systemd: Systemd
) -> None:
    events, pulse = Events(), Pulse("chat")

    async def live() -> None:
        heart = asyncio.create_task(
            heartbeat(notifier, lambda: [pulse], lambda: "chat ready", events)
        )
        pulse.promise(60, "reading and deciding")
        await asyncio.sleep(0)
        assert systemd.heard() == {"STATUS": "chat ready"}
        assert systemd.heard() == {"WATCHDOG": "1"}
        pulse.promise(-1, "reading and deciding")
        while not events.kept:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.05)
        heart.cancel()

    asyncio.run(live())
    assert events.kept[-1].text == "chat is stuck: reading and deciding takes too long"
    assert systemd.hears_nothing()


@pytest.mark.fault
def test_the_daemon_says_that_it_is_ready_alive_and_stopping_and_its_children_cannot(
    systemd: Systemd, fake_engine: FakeEngine, tmp_path: Path, free_port: int
) -> None:
    config = tmp_path / "autospec.toml"
    config.write_text(
        f'[server]\nlisten = "127.0.0.1:{free_port}"\n[models.chat]\nhf = "a/b"\ncontext = 2048\n'
    )
    arguments = ("--config", str(config), "--engine", str(fake_engine.folder), "--no-calibrate")
    told = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "60000000"}
    served = Served(tmp_path / "log", *arguments, **told)
    try:
        systemd.hears("READY=1", "WATCHDOG=1", "STATUS=chat ready")
        served.process.send_signal(signal.SIGTERM)
        systemd.hears("STOPPING=1")
        assert served.process.wait(60) == 0, served.output
    finally:
        served.clean_up()
    (start,) = fake_engine.starts()
    assert not set(told) & set(start["env"])
