"""The demo: calibrate, serve, learn from traffic, and compare with plain and the default."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from autospec.bench.arms import default_speculation, serve
from autospec.bench.asking import Answer, ArmResult, compare, diverged, paired_ratio, summary
from autospec.bench.stats import Interval
from autospec.calibration.obtain import obtain, settings_of, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.calibration.prompts import prompts
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress
from autospec.config.load import parse
from autospec.daemon.choose import Model
from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.retuning.decide import Decision
from autospec.daemon.setting import Setting
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.engine.find import Engine
from autospec.engine.launch import PLAIN, Endpoint
from autospec.engine.server import Server
from autospec.errors import ServeError
from autospec.state.store import Store

CONTEXT = 1024
TOKENS = 64
_SEED = 17
_SETTLE_SECONDS = 15.0


@dataclass(frozen=True)
class Scale:
    """How much the demo does: seconds of calibration and of learning, prompts compared."""

    budget: float
    prompts: int
    learning: float = 60.0


FULL = Scale(budget=120.0, prompts=20)
QUICK = Scale(budget=50.0, prompts=8, learning=20.0)


@dataclass(frozen=True)
class Outcome:
    """Everything the demo found. `first` is the setting before traffic, `setting` the one that
    was compared; `diverged` counts answers of the tuned arm that differ from plain's."""

    calibration: Calibration
    cached: bool
    first: Setting
    setting: Setting
    decision: Decision | None
    results: dict[str, ArmResult]
    vs_plain: Interval
    vs_default: Interval
    diverged: int
    compared: int
    seconds: float


async def run_demo(
    engine: Engine,
    target: Path,
    draft: Path,
    hardware: str,
    scale: Scale,
    *,
    say: Callable[[str], None],
    on_progress: Callable[[Progress], None],
) -> Outcome:
    """Do the whole job on `target` and `draft`; see the module."""
    began = time.monotonic()
    text = configuration(target, draft, scale)
    say(f"the configuration that does this:\n\n{text}")
    config = parse(text, path=Path("autospec.toml"))
    model = config.models["demo"]
    prepared = prepare(engine, model.launch("demo"), {})
    settings = settings_of(config)
    with Store.open() as store:
        known = stored(store, prepared, settings, hardware)
        if known is None:
            say(f"calibrating for up to {scale.budget:.0f} s")
        calibration = known or await obtain(store, prepared, settings, hardware, on_progress)
    tuner = Tuner(Model(model, prepared.context, calibration), config.retune)
    first = tuner.first()
    say(f"chosen before any traffic: {first.reason}")
    with tempfile.TemporaryDirectory(prefix="autospec-") as folder:
        sockets = Path(folder)
        async with (
            _supervised(prepared, tuner, sockets / "tuned.sock") as supervisor,
            await serve(prepared, PLAIN, sockets / "plain.sock") as plain,
            await serve(prepared, default_speculation(engine), sockets / "default.sock") as default,
        ):
            say("learning from prompts that are not compared later")
            texts = [prompt.text for prompt in prompts("learning")]
            await _learn(supervisor, tuner, texts, scale.learning)
            if tuner.decision is not None:
                say(f"after traffic: {tuner.decision.action}, {tuner.decision.reason}")
            asked = [prompt.text for prompt in prompts("evaluation")][: scale.prompts]
            say(f"comparing on {len(asked)} other prompts, three servers in turn")
            arms = {"plain": plain, "default": default, "tuned": _ready(supervisor)}
            answers = await compare(
                arms,
                asked,
                tokens=TOKENS,
                seed=_SEED,
                on_answer=lambda done: on_progress(_share("comparing", done, len(asked))),
            )
            setting = supervisor.setting
    return _outcome(calibration, known is not None, first, setting, tuner, answers, began)


def configuration(target: Path, draft: Path, scale: Scale) -> str:
    """The `autospec.toml` of the demo. It thinks again early: a person is watching."""
    return tomli_w.dumps(
        {
            "models": {"demo": {"path": str(target), "draft": str(draft), "context": CONTEXT}},
            "calibration": {"budget": scale.budget},
            "retune": {"after": 10, "min_gain": 0.02},
        }
    )


def _outcome(
    calibration: Calibration,
    cached: bool,
    first: Setting,
    setting: Setting,
    tuner: Tuner,
    answers: dict[str, list[Answer]],
    began: float,
) -> Outcome:
    return Outcome(
        calibration=calibration,
        cached=cached,
        first=first,
        setting=setting,
        decision=tuner.decision,
        results={name: summary(of_arm) for name, of_arm in answers.items()},
        vs_plain=paired_ratio(answers["tuned"], answers["plain"], seed=_SEED),
        vs_default=paired_ratio(answers["tuned"], answers["default"], seed=_SEED),
        diverged=diverged(answers["tuned"], answers["plain"]),
        compared=len(answers["plain"]),
        seconds=time.monotonic() - began,
    )


def _share(what: str, done: int, whole: int) -> Progress:
    return Progress(f"{what}: {done} of {whole} prompts", done / whole)


@contextlib.asynccontextmanager
async def _supervised(prepared: Prepared, tuner: Tuner, socket: Path) -> AsyncIterator[Supervisor]:
    """The tuned child, looked after as the daemon does."""
    charge = Charge(
        prepared.engine,
        prepared.launch,
        Endpoint(socket=socket),
        prepared.env,
        prepared.load_seconds,
    )
    supervisor = Supervisor(charge, tuner.first(), Events(), tuner.reconsider)
    owner = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        supervisor.stop(hurry=True)
        await asyncio.shield(owner)


async def _learn(
    supervisor: Supervisor, tuner: Tuner, texts: Sequence[str], seconds: float
) -> None:
    """Send real traffic, for `seconds` or until the tuner has thought about it; let it act."""
    await _until(lambda: supervisor.life.phase is Phase.READY, supervisor, 600.0)
    deadline = time.monotonic() + seconds
    for text in texts:
        if time.monotonic() > deadline or tuner.decision is not None:
            break
        await _ready(supervisor).chat(text, tokens=TOKENS, within=300.0)
    settled = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < settled:
        decision = tuner.decision
        if decision is None or decision.action == "keep":
            break
        if supervisor.restarts and supervisor.life.phase is Phase.READY:
            break
        await asyncio.sleep(0.2)
    await _until(lambda: supervisor.life.phase is Phase.READY, supervisor, 600.0)


async def _until(reached: Callable[[], bool], supervisor: Supervisor, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if supervisor.life.phase is Phase.FAILED or time.monotonic() > deadline:
            raise ServeError(
                f"the tuned server is {supervisor.life.phase}: {supervisor.life.reason}"
            )
        await asyncio.sleep(0.1)


def _ready(supervisor: Supervisor) -> Server:
    if supervisor.server is None:
        raise ServeError(f"the tuned server is {supervisor.life.phase}: {supervisor.life.reason}")
    return supervisor.server
