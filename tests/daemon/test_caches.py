"""Over a restart in turn, the slots keep what they have read; nobody else can use the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gated import ask
from supervised import PLAIN, charge_of, drafting, supervised

from autospec import paths
from autospec.daemon.caches import remove_left_behind
from autospec.daemon.gate import Gate
from autospec.daemon.lifecycle import Phase
from autospec.daemon.replacement import Room
from autospec.daemon.setting import Setting
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

CRAMPED = Surroundings(room=lambda: Room(0, {}))
ENDPOINT = Endpoint()


def folders() -> list[str]:
    return [folder.name for folder in paths.cache().glob("slots-*")]


def test_a_restart_for_a_setting_keeps_them_and_leaves_no_file(fake_engine: FakeEngine):
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, drafting(3), gate=gate, around=CRAMPED) as it:
            await it.until(Phase.READY)
            await ask(gate, n_predict=100)
            assert gate.private_slots
            it.supervisor.apply(charge, PLAIN)
            await it.until(lambda: it.supervisor.generation == 2)
            assert it.said("100 tokens in 1 of 1 slots need not be read again") == 1
            (folder,) = paths.cache().glob("slots-*")
            assert list(folder.iterdir()) == []
            assert folder.stat().st_mode & 0o777 == 0o700
            await it.stopped()
            assert folders() == []

    asyncio.run(main())


def another_context(charge: Charge) -> Charge:
    return replace(charge, launch=replace(charge.launch, context=2048), context=2048)


@pytest.mark.parametrize(
    ("changed", "setting"),
    [(another_context, PLAIN), (lambda charge: charge, drafting(3))],
    ids=["another context", "a draft, which would draft blindly"],
)
def test_what_the_next_child_could_not_use_well_is_not_kept(
    fake_engine: FakeEngine, changed: Callable[[Charge], Charge], setting: Setting
):
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT)
        async with supervised(charge, gate=gate, around=CRAMPED) as it:
            await it.until(Phase.READY)
            await ask(gate, n_predict=100)
            it.supervisor.apply(changed(charge), setting)
            await it.until(lambda: it.supervisor.generation == 2)
            assert not it.said("need not be read again")

    asyncio.run(main())


@pytest.mark.parametrize("why", ["the user's own", "no gate"])
def test_where_it_is_not_ours_to_use_nothing_is_passed(
    fake_engine: FakeEngine, free_port: int, why: str
):
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, Endpoint(port=free_port))
        if why == "the user's own":
            extra = ("--slot-save-path", str(fake_engine.folder))
            charge = replace(charge, launch=replace(charge.launch, extra=extra))
        async with supervised(charge, gate=None if why == "no gate" else gate) as it:
            await it.until(Phase.READY)
            (start,) = fake_engine.starts()
            assert start["argv"].count("--slot-save-path") == (why == "the user's own")
            assert not gate.private_slots
            assert folders() == []

    asyncio.run(main())


def test_what_a_killed_daemon_left_is_removed() -> None:
    left = paths.private(paths.cache()) / "slots-abc"
    left.mkdir()
    (left / "0.bin").write_text("a prompt")
    remove_left_behind()
    assert folders() == []
