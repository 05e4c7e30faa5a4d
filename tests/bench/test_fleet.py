"""Servers side by side where they fit, in turn where they do not; an arm that fails ends alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from autospec.bench.fleet import Fleet
from autospec.engine.server import Server
from autospec.errors import ServeError

GIB = 1 << 30


class Machine:
    """So much memory, of which every running arm takes `each`."""

    def __init__(self, total: int, each: int = GIB) -> None:
        self.total = total
        self.each = each
        self.running: set[str] = set()

    def free(self) -> tuple[int, ...]:
        return (self.total - self.each * len(self.running),)


class PretendArm:
    def __init__(self, name: str, machine: Machine, fault: str | None = None) -> None:
        self.name = name
        self.pids: tuple[int, ...] = ()
        self.starts = 0
        self._machine = machine
        self._fault = fault

    async def start(self, socket: Path) -> None:
        if self._fault:
            raise ServeError(self._fault)
        self._machine.running.add(self.name)
        self.starts += 1

    async def ready(self, cell: str) -> Server:
        assert self.name in self._machine.running
        return cast("Server", self)

    def take(self) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        self._machine.running.discard(self.name)


def play(machine: Machine, arms: dict[str, PretendArm], order: str) -> Fleet:
    async def go() -> Fleet:
        fleet = Fleet(arms, Path("/nowhere"), machine.free)
        for name in order:
            await fleet.get(name, "code")
        return fleet

    return asyncio.run(go())


def test_arms_that_fit_stay_side_by_side() -> None:
    machine = Machine(10 * GIB)
    arms = {name: PretendArm(name, machine) for name in "abc"}
    fleet = play(machine, arms, "abcabcabc")
    assert not fleet.crowded
    assert machine.running == {"a", "b", "c"}
    assert [arm.starts for arm in arms.values()] == [1, 1, 1]


def test_where_memory_is_short_the_longest_unused_gives_way() -> None:
    machine = Machine(int(2.5 * GIB))
    arms = {name: PretendArm(name, machine) for name in "abc"}
    fleet = play(machine, arms, "abac")
    assert fleet.crowded
    assert machine.running == {"a", "c"} or machine.running == {"c"}
    assert len(machine.running) * GIB <= machine.total


def test_an_arm_that_cannot_start_ends_alone() -> None:
    machine = Machine(10 * GIB)
    arms = {"a": PretendArm("a", machine), "b": PretendArm("b", machine, "no room")}
    fleet = play(machine, arms, "aba")
    assert fleet.failed == {"b": "no room"}
    assert fleet.names == ["a"]
    assert machine.running == {"a"}


def test_closing_ends_everything() -> None:
    machine = Machine(10 * GIB)
    arms = {name: PretendArm(name, machine) for name in "ab"}
    asyncio.run(play(machine, arms, "ab").close())
    assert not machine.running
