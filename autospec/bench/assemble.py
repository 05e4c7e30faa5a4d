"""From a configuration to a benchmark: the pair, its costs, the cells, the journal's name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autospec import __version__
from autospec.bench.arms import ARMS, Subject
from autospec.bench.journal import key_of
from autospec.bench.runner import Order
from autospec.bench.suite import Suite, cells_of, default_depths
from autospec.bench.workloads import Request, requests_of
from autospec.calibration.obtain import obtain, settings_of, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.calibration.run import Progress
from autospec.calibration.store import model_identity
from autospec.config.schema import Config
from autospec.engine.find import Engine
from autospec.errors import UsageError
from autospec.state.store import Store


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for; empty or None is the suite's own choice."""

    arms: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    depths: tuple[int, ...] | None = None
    prompts: Path | None = None


def with_slots(config: Config, name: str, slots: Sequence[int]) -> Config:
    """`config` with its model `name` launched for the largest of `slots`, each slot with the
    context that one has now."""
    model = config.models[name]
    most = max(slots)
    if most <= model.slots:
        return config
    context = model.context // model.slots * most
    larger = model.model_copy(update={"slots": most, "context": context})
    return config.model_copy(update={"models": {**config.models, name: larger}})


def name_of(config: Config, wanted: str | None) -> str:
    """The model to benchmark. UsageError for an unknown name, for a choice that is not made,
    and for a model without a draft."""
    models = config.enabled_models()
    names = ", ".join(config.models) or "none"
    if wanted is None and len(models) != 1:
        raise UsageError(
            "name the model to benchmark", hint=f"autospec bench MODEL, one of: {names}"
        )
    name = next(iter(models)) if wanted is None else wanted
    if name not in config.models:
        raise UsageError(f"no model is called {name!r}", hint=f"the configuration has: {names}")
    model = config.models[name]
    if model.draft is None and model.draft_hf is None:
        raise UsageError(
            f"{name} has no draft model: there is nothing to compare",
            hint="name one with `draft` in the configuration",
        )
    return name


async def subject_of(
    engine: Engine,
    config: Config,
    name: str,
    hardware: str,
    on_progress: Callable[[Progress], None],
    *,
    anew: bool = False,
) -> tuple[Subject, bool]:
    """The pair with its calibration, and whether that was known; with `anew` it is measured."""
    model = config.models[name]
    prepared = prepare(engine, model.launch(name), config.engine.environment)
    settings = settings_of(config)
    with Store.open() as store:
        known = None if anew else stored(store, prepared, settings, hardware)
        calibration = known or await obtain(store, prepared, settings, hardware, on_progress)
    return Subject(config, model, prepared, calibration), known is not None


def order_of(suite: Suite, wishes: Wishes, prepared: Prepared) -> Order:
    """What is measured. UsageError for names that nothing is called by."""
    requests = requests_of(wishes.prompts)
    workloads = wishes.workloads or tuple(requests)
    _known("workload", workloads, tuple(requests))
    arms = wishes.arms or ARMS
    _known("arm", arms, ARMS)
    if "plain" not in arms:
        arms = ("plain", *arms)
    slots = wishes.slots or _powers(prepared.launch.slots)
    depths = wishes.depths
    if depths is None:
        a_slot = prepared.context // prepared.launch.slots
        depths = default_depths(a_slot, suite.tokens) if suite.name == "full" else ()
    return Order(suite, cells_of(workloads, slots, depths), arms, requests)


def journal_key(subject: Subject, order: Order) -> str:
    """All that figures depend on: build, models, flags, settings, and every text that is asked."""
    launch = subject.prepared.launch
    files = [model_identity(path) for path in (launch.model, launch.draft) if path is not None]
    return key_of(
        [
            __version__,
            subject.prepared.engine.identity,
            files,
            [launch.hf, launch.draft_hf, launch.context, launch.slots, list(launch.extra)],
            subject.calibration.key,
            subject.calibration.made_at,
            subject.config.retune.model_dump(mode="json"),
            subject.model.model_dump(mode="json", exclude={"path", "draft"}),
            asdict(replace(order.suite, budget=0.0)),
            [cell.key for cell in order.cells],
            list(order.arms),
            _digest(order.requests),
        ]
    )


def _digest(requests: Mapping[str, Sequence[Request]]) -> str:
    digest = hashlib.sha256()
    for name, some in requests.items():
        digest.update(repr((name, [one.messages for one in some])).encode())
    return digest.hexdigest()


def _known(what: str, names: Sequence[str], all_: Sequence[str]) -> None:
    for name in names:
        if name not in all_:
            raise UsageError(f"no {what} is called {name!r}", hint=f"there are: {', '.join(all_)}")


def _powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, … up to the slots that there are."""
    return tuple(count for count in (1, 2, 4, 8) if count <= most)
