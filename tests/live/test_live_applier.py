"""When the live policy is tried, how a child is launched for it, and what a handshake concludes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.engine.arguments import server_argv
from autospec.engine.environment import child_environment
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.engine.live.applier import (
    P_MIN,
    LiveSession,
    explain,
    handshake,
    live_speculation,
    obstacle,
    verdict,
)
from autospec.engine.live.memory import Reason, State, Status
from autospec.engine.live.policy import at_most
from autospec.engine.live.telemetry import LiveRound
from autospec.engine.server import Server
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels

pytestmark = pytest.mark.live

WANTED = Speculation(("draft-simple",), n_max=8, n_min=2, p_min=0.3)
STATUS = Status(State.LIVE, Reason.NONE, 0, 1, 1, 5, 1, 0, 0, 0, 0)


@pytest.fixture
def session() -> Iterator[LiveSession]:
    session = LiveSession.open()
    yield session
    session.close()


def a_round(drafted: int, *, cut: bool) -> LiveRound:
    return LiveRound(
        round=Round((0.5,) * drafted, 0, 1.0, 1.0, 0.1 if cut else None),
        slot=0, busy=1, depth=9, began=1.0, policy=1, obeyed=True, cut=cut, skipped=False,
        second=(), purity=(),
    )  # fmt: skip


def test_the_flags_leave_every_decision_to_the_library() -> None:
    given = live_speculation(WANTED)
    assert (given.n_max, given.n_min, given.p_min) == (8, 0, P_MIN)
    assert live_speculation(replace(WANTED, n_max=200)).n_max == 64


def test_the_library_stands_before_what_the_user_preloads(session: LiveSession) -> None:
    alone = session.environment({"A": "1"})
    assert alone["LD_PRELOAD"] == str(session.library)
    assert alone["A"] == "1"
    beside = session.environment({"LD_PRELOAD": "/usr/lib/libjemalloc.so"})
    assert beside["LD_PRELOAD"] == f"{session.library}:/usr/lib/libjemalloc.so"
    assert beside["AUTOSPEC_LIVE"] == ",".join(map(str, session.descriptors))


@pytest.mark.real
def test_what_stands_in_the_way_is_said(engine: Engine) -> None:
    launch = Launch("x", model=Path("/x"), slots=4)
    assert obstacle(engine, launch, ("draft-simple",)) is None
    assert "statically" in str(obstacle(replace(engine, shared=False), launch, ("draft-simple",)))
    assert "ngram-mod" in str(obstacle(engine, launch, ("ngram-mod",)))
    assert "plain decoding" in str(obstacle(engine, launch, ()))
    assert "64 slots" in str(obstacle(engine, replace(launch, slots=65), ("draft-simple",)))
    other = replace(engine, server=Path("/bin/true"))
    assert "does not export" in str(obstacle(other, launch, ("draft-simple",)))


@pytest.mark.parametrize(
    ("status", "rounds", "why"),
    [
        (STATUS, [a_round(1, cut=True)], None),
        (STATUS, [a_round(0, cut=True), a_round(1, cut=False)], None),
        (STATUS, [a_round(2, cut=False)], "do not end drafts"),
        (STATUS, [a_round(1, cut=False)], "no draft of the probe"),
        (STATUS, [], "no draft of the probe"),
        (replace(STATUS, state=State.ABSENT), [], "not loaded"),
        (replace(STATUS, state=State.WAITING), [], "saw no draft"),
        (replace(STATUS, state=State.CHECKING), [], "looking at"),
        (replace(STATUS, state=State.INERT, reason=Reason.CUT_IGNORED), [], "went on drafting"),
    ],
)
def test_a_verdict_needs_a_cut_and_no_draft_too_long(
    status: Status, rounds: list[LiveRound], why: str | None
) -> None:
    said = verdict(status, rounds, 1)
    assert said is None if why is None else why in str(said)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    said = explain(replace(STATUS, state=State.INERT, reason=reason))
    assert said.startswith("it stands aside for good: ")


@pytest.mark.real
@pytest.mark.parametrize("preloaded", [True, False])
def test_a_handshake_on_the_engine_proves_or_refuses(
    engine: Engine, models: DemoModels, session: LiveSession, free_port: int, preloaded: bool
) -> None:
    launch = Launch("x", model=models.draft, draft=models.draft_three_dropped, context=512)
    endpoint = Endpoint(port=free_port)
    argv = server_argv(engine, launch, live_speculation(WANTED), endpoint)
    environment, _ = child_environment(os.environ, {})
    if preloaded:
        environment = session.environment(environment)

    async def shake() -> str | None:
        started = Server.start(argv, environment, endpoint, descriptors=session.descriptors)
        async with await started as server:
            await server.ready(300)
            said = await handshake(session, server, n_max=8, within=300)
            if said is None:
                session.put(at_most(2, 8))
                await server.chat("Say something.", tokens=16, within=300)
            return said

    said = asyncio.run(shake())
    rounds = session.rounds()
    if preloaded:
        assert said is None
        assert {r.round.drafted for r in rounds} <= {0, 1, 2}
        assert any(r.cut for r in rounds)
    else:
        assert "not loaded" in str(said)
        assert rounds == []
