"""A stuck child is found, a busy one never is."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest
from gated import ask, stream
from hypothesis import given
from hypothesis import strategies as st
from supervised import QUICK, charge_of, gone, supervised

from autospec.daemon import child as children
from autospec.daemon.gate import Gate
from autospec.daemon.lifecycle import Phase
from autospec.daemon.liveness import Liveness, Patience, Seen
from autospec.engine import server as servers
from autospec.engine.activity import Activity
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

PATIENCE = Patience(still=60.0, stuck=900.0)
SHORT = replace(QUICK, grace=0.3, poll=0.3, patience=Patience(still=2.0, stuck=3600.0))
ENDPOINT = Endpoint()


def watched(*, seconds: int, busy: bool, **changes: bool) -> str | None:
    """The verdict after so many looks, one a second; `changes` tells what moves between them."""
    life = Liveness.new(0.0)
    for now in range(seconds):
        progress = None
        if changes.get("answers", True):
            progress = now if changes.get("moves") else 0
        work = Activity(0.5 * now if changes.get("works") else 0.001 * now, 0)
        life = life.look(Seen(float(now), progress, busy, work))
    return life.verdict(PATIENCE)


def test_an_idle_child_that_answers_may_rest_for_ever() -> None:
    assert watched(seconds=5000, busy=False) is None


def test_a_child_whose_slots_get_on_is_well_however_long_a_request_takes() -> None:
    assert watched(seconds=5000, busy=True, moves=True) is None


def test_a_child_that_computes_without_an_answer_is_given_the_time_of_a_long_batch() -> None:
    assert watched(seconds=890, busy=True, answers=False, works=True) is None
    verdict = watched(seconds=910, busy=True, answers=False, works=True)
    assert verdict is not None
    assert "got nowhere" in verdict


@pytest.mark.parametrize("answers", [False, True])
def test_a_child_in_which_nothing_moves_is_stuck(answers: bool) -> None:
    assert watched(seconds=59, busy=True, answers=answers) is None
    verdict = watched(seconds=63, busy=True, answers=answers)
    assert verdict is not None
    assert "nothing has moved" in verdict


def test_a_child_that_reads_from_disk_is_at_work() -> None:
    life = Liveness.new(0.0)
    for now in range(600):
        life = life.look(Seen(float(now), None, True, Activity(0.0, now)))
    assert life.verdict(PATIENCE) is None


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.none() | st.integers(0, 3), st.booleans(), st.booleans()),
        max_size=40,
    )
)
def test_a_look_at_a_child_that_moves_clears_every_suspicion(
    looks: list[tuple[float, int | None, bool, bool]],
) -> None:
    life, now, done = Liveness.new(0.0), 0.0, 0.0
    for gap, progress, busy, works in looks:
        now += gap
        done += gap if works else 0.0
        life = life.look(Seen(now, progress, busy, Activity(done, 0)))
        assert life.moved <= now
    life = life.look(Seen(now + 1.0, "new", True, None))
    assert life.verdict(PATIENCE) is None


# --- against the fake engine --------------------------------------------------------------


@pytest.mark.fault
def test_a_stopped_child_is_found_and_replaced(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.2)
    gate = Gate("m")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=SHORT) as it:
            await it.until(Phase.READY)
            child = it.child
            child.send_signal(signal.SIGSTOP)
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            assert it.said("llama-server hangs: nothing has moved in it")
            assert it.supervisor.last_cause is not None
            assert it.supervisor.last_cause.kind == "wedged"
            generation, _ = await ask(gate)
            assert generation == 2

    asyncio.run(main())


@pytest.mark.fault
@pytest.mark.parametrize("script", [{"wedge_after": 1}, {"hang": "completion"}])
def test_a_wedge_behind_a_healthy_face_is_found_and_replaced(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, script: dict[str, object]
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.2)
    gate = Gate("m")
    fake_engine.script_server(**script)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=SHORT) as it:
            await it.until(Phase.READY)
            if "wedge_after" in script:
                await ask(gate)
            child = it.child
            lost = asyncio.create_task(ask(gate))
            await it.until(lambda: gate.in_flight() == 1)
            assert it.supervisor.server is not None
            assert (await it.supervisor.server.client.get("/health")).status_code == 200
            fake_engine.script_server()
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            with pytest.raises(httpx.HTTPError):
                await lost
            generation, _ = await ask(gate)
            assert generation == 2

    asyncio.run(main())


@pytest.mark.fault
@pytest.mark.parametrize("batch", [6.0, 0.3])
def test_a_long_prompt_is_let_work(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, batch: float
):
    """Without an answer for far longer than a still child is given, then with some."""
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.2)
    gate = Gate("m")
    fake_engine.script_server(prefill_seconds=6.0, batch_seconds=batch)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=SHORT) as it:
            await it.until(Phase.READY)
            assert (await stream(gate, n_predict=5)).count("data: ") >= 5
            assert len(fake_engine.starts()) == 1
            assert not it.supervisor.life.deaths

    asyncio.run(main())


@pytest.mark.fault
@pytest.mark.parametrize("dead", [False, True])
def test_a_client_that_reads_slowly_is_told_from_a_dead_loop_behind_idle_slots(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, dead: bool
):
    monkeypatch.setattr(children, "PROBE_AFTER", 0.3)
    gate = Gate("m")
    fake_engine.script_server(deaf=dead)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=SHORT) as it:
            await it.until(Phase.READY)
            child = it.child
            leave = await gate.enter(30)
            with gate.passing(leave):
                if dead:
                    await it.until(lambda: it.said("llama-server hangs"))
                    await it.until(lambda: gone(child))
                else:
                    await asyncio.sleep(3 * SHORT.patience.still)
                    assert it.child == child
                    assert not it.supervisor.life.deaths

    asyncio.run(main())
