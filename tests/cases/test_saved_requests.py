"""Out of memory at the first long request, a server that is healthy and dead, an engine that is
updated under it: clients at the front door are answered all the same, by the next child."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest
from supervised import PACE, Nursery, charge_of, drafting, gone, supervised

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.gate import Gate
from autospec.daemon.ladder import Step
from autospec.daemon.lifecycle import Phase
from autospec.daemon.liveness import Patience
from autospec.daemon.setting import Setting
from autospec.daemon.terms import Charge
from autospec.daemon.timing import Timing
from autospec.daemon.treatment import TREATMENTS, Treatment
from autospec.engine import server as servers
from autospec.engine.failures import explain_exit
from autospec.engine.find import read_engine
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = [pytest.mark.case, pytest.mark.fault]

IMPATIENT = Timing(
    pace=PACE, patience=Patience(still=2.0, stuck=3600.0), poll=0.5, grace=1.0, glance=0.01
)


@asynccontextmanager
async def behind_a_door(
    charge: Charge, port: int, setting: Setting
) -> AsyncIterator[tuple[Nursery, str]]:
    """A supervisor whose model is reached through a front door, and the door's address."""
    gate, address = Gate("m"), Address("127.0.0.1", port)
    section = ServerSection.model_validate({"listen": str(address), "wait": 60})
    front = FrontDoor({"m": gate}, section, {address: None})
    async with supervised(charge, setting, gate=gate, timing=IMPATIENT) as it:
        await front.start()
        try:
            await it.until(Phase.READY)
            yield it, f"http://{address}/completion"
        finally:
            front.hurry()
            await front.stop()


async def ask(url: str, tokens: int = 8) -> int:
    body = {"prompt": "a", "n_predict": tokens}
    async with aiohttp.ClientSession() as client, client.post(url, json=body) as answer:
        assert await answer.read()
        return answer.status


# --- out of memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory",
        "alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
        "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
        "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824",
        "graph_reserve: failed to allocate compute buffers",
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 4096.00 MB)",
        "llama_kv_cache: failed to allocate buffer for kv cache",
        "ROCm error: out of memory",
        "  what():  std::bad_alloc",
    ],
)
@pytest.mark.parametrize("code", [1, -signal.SIGABRT])
def test_a_lack_of_memory_is_known_in_every_backends_words(words: str, code: int):
    cause = explain_exit(code, ["srv  update_slots: decoding", words, "Aborted"])
    assert cause.kind == "out_of_memory", cause
    assert TREATMENTS[cause.kind] is Treatment.STEP_DOWN


def test_a_first_request_that_needs_too_much_is_answered_with_less_memory(
    fake_engine: FakeEngine, free_port: int
):
    fake_engine.script_server(request_limit=4096)
    charge = charge_of(fake_engine, Endpoint(), slots=1)
    launch = replace(charge.launch, context=8192)
    charge = replace(charge, launch=launch, context=8192, on_gpu=True)

    async def main() -> None:
        async with behind_a_door(charge, free_port, drafting(4)) as (it, url):
            assert await ask(url) == 200
            assert it.supervisor.degraded == (Step.DRAFT_OFF_GPU, Step.HALF_CONTEXT)
            assert it.said("memory ran out; from now on: half the context") == 1
            starts = len(fake_engine.starts())
            it.child.kill()
            await it.until(lambda: it.said("ready: ") == starts + 1)
            assert await ask(url) == 200
            assert len(fake_engine.starts()) == starts + 1

    asyncio.run(main())


# --- healthy and dead ---------------------------------------------------------------------


@pytest.mark.parametrize("script", [{"hang": "completion"}, {"wedge_after": 0}])
def test_requests_in_a_dead_server_are_answered_by_the_next(
    fake_engine: FakeEngine,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    script: dict[str, object],
):
    """/health says 200, completions and perhaps /slots hang, SIGTERM is ignored."""
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.2)
    fake_engine.script_server(**script, ignore_sigterm=True)

    async def main() -> None:
        charge = charge_of(fake_engine, Endpoint(), slots=2)
        async with behind_a_door(charge, free_port, drafting(4)) as (it, url):
            dead = it.child
            asked = [asyncio.create_task(ask(url)) for _ in range(5)]
            await asyncio.sleep(0.2)
            assert it.supervisor.server is not None
            assert (await it.supervisor.server.client.get("/health")).status_code == 200
            fake_engine.script_server()
            assert await asyncio.gather(*asked) == [200] * 5
            assert gone(dead)
            assert it.said("llama-server hangs")

    asyncio.run(main())


def test_a_long_prompt_is_no_dead_server(
    fake_engine: FakeEngine, free_port: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.2)
    fake_engine.script_server(prefill_seconds=3 * IMPATIENT.patience.still)

    async def main() -> None:
        async with behind_a_door(charge_of(fake_engine, Endpoint()), free_port, drafting(4)) as (
            it,
            url,
        ):
            assert await ask(url) == 200
            assert not it.supervisor.life.deaths

    asyncio.run(main())


# --- an engine update removes flags -------------------------------------------------------


def updated(fake: FakeEngine, *words: tuple[str, str]) -> None:
    """Put another build in the engine's place, whose help differs in `words`."""
    text = fake.server.read_text()
    edits = "".join(
        f"fake_server.HELP = fake_server.HELP.replace({a!r}, {b!r})\n" for a, b in words
    )
    fresh = fake.server.with_name("fresh")
    fresh.write_text(text.replace("fake_server.main(", edits + "fake_server.main("))
    fresh.chmod(0o755)
    fresh.replace(fake.server)


def test_after_an_update_the_next_child_is_started_with_the_new_builds_flags(
    fake_engine: FakeEngine, free_port: int
):
    charge = charge_of(fake_engine, Endpoint())
    charge = replace(charge, engine=read_engine(fake_engine.server, "a test"))

    async def main() -> None:
        async with behind_a_door(charge, free_port, drafting(4)) as (it, url):
            assert "--spec-draft-p-min" in fake_engine.starts()[0]["argv"]
            updated(fake_engine, ("--spec-draft-p-min, --draft-p-min P", "--draft-p-min P"))
            it.child.kill()
            assert await ask(url) == 200
            assert it.said("the engine was updated") == 1
            argv = fake_engine.starts()[-1]["argv"]
            assert "--spec-draft-p-min" not in argv
            assert "--draft-p-min" in argv

    asyncio.run(main())


def test_an_update_that_lacks_a_flag_of_the_users_is_said_in_its_words_and_not_tried_again(
    fake_engine: FakeEngine, free_port: int
):
    charge = charge_of(fake_engine, Endpoint())
    launch = replace(charge.launch, extra=("--threads", "1"))
    engine = read_engine(fake_engine.server, "a test")
    charge = replace(charge, engine=engine, launch=launch)

    async def main() -> None:
        async with behind_a_door(charge, free_port, drafting(4)) as (it, _url):
            words = "the argument has been removed. use --cores"
            updated(fake_engine, ("CPU threads (default: -1)", words))
            it.child.kill()
            await it.until(Phase.FAILED)
            assert "does not know --threads" in it.supervisor.life.reason
            assert "use --cores" in it.supervisor.life.reason
            assert len(fake_engine.starts()) == 1

    asyncio.run(main())
