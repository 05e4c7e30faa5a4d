from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from autospec.daemon.gate import Gate, GateRefusal, Pass, Way
from autospec.engine.launch import Endpoint

FIRST, SECOND = Endpoint(port=1), Endpoint(port=2)
LONG = 30.0


def run(check: Callable[[Gate], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(check(Gate("m", most_waiting=2)), LONG)

    asyncio.run(main())


def test_requests_wait_while_the_child_is_away_and_pass_when_it_is_there() -> None:
    async def check(gate: Gate) -> None:
        waiting = [asyncio.create_task(gate.enter(LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        assert gate.waiting == 2
        gate.open(FIRST)
        assert await asyncio.gather(*waiting) == [Pass(FIRST, 1)] * 2
        assert gate.waiting == 0

    run(check)


def test_more_than_the_bound_do_not_wait() -> None:
    async def check(gate: Gate) -> None:
        waiting = [asyncio.create_task(gate.enter(LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(GateRefusal, match="2 requests wait already") as refused:
            await gate.enter(LONG)
        assert not refused.value.gone
        gate.open(FIRST)
        await asyncio.gather(*waiting)

    run(check)


def test_waiting_ends_with_the_reason_and_when_the_child_is_expected() -> None:
    async def check(gate: Gate) -> None:
        gate.hold("loading", expected=20.0)
        with pytest.raises(GateRefusal, match="loading") as refused:
            await gate.enter(0.01)
        assert 10 < refused.value.retry_after <= 20

    run(check)


def test_a_shut_gate_refuses_at_once_also_those_that_wait() -> None:
    async def check(gate: Gate) -> None:
        waiting = asyncio.create_task(gate.enter(LONG))
        await asyncio.sleep(0)
        gate.shut("failed: no such file")
        with pytest.raises(GateRefusal, match="no such file") as refused:
            await waiting
        assert refused.value.gone
        with pytest.raises(GateRefusal):
            await gate.enter(LONG)

    run(check)


def test_a_request_wakes_a_child_that_is_asleep() -> None:
    async def check(gate: Gate) -> None:
        gate.sleep("nobody asked for it")
        request = asyncio.create_task(gate.enter(LONG))
        await gate.wanted()
        assert gate.way is Way.ASLEEP
        gate.hold("waking")
        gate.open(FIRST)
        assert (await request).endpoint == FIRST

    run(check)


def test_a_new_child_takes_new_requests_while_the_old_one_empties() -> None:
    async def check(gate: Gate) -> None:
        old = gate.open(FIRST)
        with gate.passing(await gate.enter(LONG)):
            new = gate.open(SECOND)
            emptied = asyncio.create_task(gate.emptied(old))
            leave = await gate.enter(LONG)
            assert leave == Pass(SECOND, new)
            with gate.passing(leave):
                assert (gate.in_flight(old), gate.in_flight(new), gate.in_flight()) == (1, 1, 2)
            await asyncio.sleep(0)
            assert not emptied.done()
        await emptied
        assert gate.in_flight() == 0

    run(check)


def test_a_held_gate_opens_again_to_the_same_child() -> None:
    async def check(gate: Gate) -> None:
        generation = gate.open(FIRST)
        gate.hold("draining")
        request = asyncio.create_task(gate.enter(LONG))
        await asyncio.sleep(0)
        gate.reopen()
        assert await request == Pass(FIRST, generation)

    run(check)
