"""Figures that users published, as what was measured: the choice that follows from them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from supervised import engine_of

from autospec.calibration import rehearsal
from autospec.calibration.rehearsal import rehearse
from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig
from autospec.daemon.choose import Model, choose, cost_of
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.setting import Basis
from autospec.engine.launch import Launch, Speculation
from autospec.engine.observe import Timings
from autospec.engine.server import Completion, Server
from autospec.tuning.cost import StepTime, fit_overhead, simple_cost
from autospec.tuning.observations import Counters, Round
from autospec.tuning.plan import Measured, Trial, make_plan
from autospec.tuning.survival import SurvivalModel

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.case

PAIR = {"path": "target.gguf", "draft": "draft.gguf"}


def counted(survival: list[float], drafts: int = 500) -> Counters:
    """What the engine counts when its drafts survive so."""
    positions = tuple(round(drafts * share) for share in survival)
    accepted = sum(positions)
    return Counters(drafts, drafts * len(survival), accepted, positions, drafts + accepted, 1.0)


def known(**changes: Any) -> Calibration:
    """A target that takes 40 ms a token and little more for a few, beside a draft at 2 ms."""
    fields: dict[str, Any] = {
        "key": "k", "model": "m", "made_at": 0.0, "seconds": 1.0, "engine_version": "1",
        "max_draft": 8,
        "target": tuple(StepTime(b, 0, 38.0 + 2 * b, 0.1, 5) for b in range(1, 10)),
        "draft": tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in range(1, 10)),
    }  # fmt: skip
    return Calibration(**(fields | changes))


def after(calibration: Calibration, counters: Counters, n_max: int, busy: int = 1) -> Model:
    """The pair after traffic in which `busy` slots drafted up to `n_max` tokens."""
    under = Speculation(("draft-simple",), n_max)
    taught = Knowledge.of(calibration, calibration.max_draft).with_counts(counters, under)
    config = ModelConfig(slots=busy, **PAIR)
    traffic = Basis(100.0, busy, counters.drafts)
    return Model(config, 4096 * busy, calibration, taught=taught, traffic=traffic)


# --- acceptance collapses with the default ------------------------------------------------


def test_speculation_that_accepts_7_percent_is_off():
    accepted = Counters(459, 1378, 96, (80, 12, 4), 555, 30.0)
    setting = choose(after(known(), accepted, 3))
    assert not setting.speculation.on
    assert setting.reason.startswith("off: ")


def rounds(extra_ms: float, count: int = 200) -> tuple[Round, ...]:
    """Drafts of 1 to 4 tokens that are nearly always right; a round costs `extra_ms` more."""
    made = []
    for n in range(count):
        k = 1 + n % 4
        steps = 38.0 + 2 * (k + 1) + 2.0
        made.append(Round((0.9,) * k, k if n % 10 else 0, 2.0 * k, steps + extra_ms))
    return tuple(made)


def test_a_fixed_cost_of_each_round_is_learned_and_weighs_in_the_choice():
    cheap, dear = (known(rounds=rounds(extra)) for extra in (0.0, 20.0))
    overheads = [
        fit_overhead(one.rounds, one.surface, one.draft_cost("autoregressive"))
        for one in (cheap, dear)
    ]
    added = overheads[1].verify_fixed_ms - overheads[0].verify_fixed_ms
    assert added == pytest.approx(20.0, rel=0.2)
    costs = [cost_of(Model(ModelConfig(**PAIR), 4096, one)) for one in (cheap, dear)]
    assert costs[1].verify_ms[4] - costs[0].verify_ms[4] == pytest.approx(20.0, rel=0.2)
    assert costs[0].plain_ms == costs[1].plain_ms


def test_where_the_fixed_cost_eats_the_gain_of_90_percent_it_is_off():
    survival = SurvivalModel.from_counters(counted([0.9]), 1)
    plain, steps = 25.0, [25.0, 27.0]
    assert make_plan(simple_cost(steps, 1.0, plain_ms=plain), survival).speculate
    eaten = simple_cost([step + 20.0 for step in steps], 1.0, plain_ms=plain)
    plan = make_plan(eaten, survival)
    assert not plan.speculate
    assert plan.rate == plan.plain_rate


# --- a benchmark that repeats its prompt lies ---------------------------------------------


def rehearsed(fake: FakeEngine, prompts: list[str]) -> rehearsal.Rehearsal:
    launch = Launch("m", fake.folder / "m.gguf", draft=fake.folder / "d.gguf", context=512)
    speculation = Speculation(("draft-simple",), 3)
    path = {"PATH": "/usr/bin:/bin"}
    return asyncio.run(rehearse(engine_of(fake), launch, speculation, prompts, path, seconds=20.0))


def test_a_rehearsal_hears_each_prompt_once(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
):
    heard = []

    async def chat(_self: Server, prompt: str, **_: object) -> Completion:
        heard.append(prompt)
        return Completion("{}", Timings(9, 1.0, 48, 48.0))

    monkeypatch.setattr(Server, "chat", chat)
    rehearsed(fake_engine, ["one", "two", "one", "three"])
    assert heard == ["one", "two", "three"]


def test_an_answer_from_the_prompt_cache_is_no_measurement(fake_engine: FakeEngine):
    fake_engine.script_server(cached=500)
    found = rehearsed(fake_engine, ["one", "two"])
    assert found.rounds == ()
    assert found.remark is not None
    assert "prompt cache" in found.remark


# --- a shipped default loses to plain -----------------------------------------------------

TABLES: dict[str, tuple[float, dict[tuple[int, float], float], tuple[int, float] | None]] = {
    "a short draft wins": (
        26.7, {(3, 0.0): 23.5, (2, 0.0): 29.6, (2, 0.6): 30.5, (2, 0.85): 29.5}, (2, 0.6),
    ),
    "the default alone": (26.7, {(3, 0.0): 23.5}, None),
    "p_min ruins": (23.5, {(3, 0.75): 19.0, (3, 0.0): 48.0}, (3, 0.0)),
    "p_min alone": (23.5, {(3, 0.75): 19.0}, None),
    "sixteen busy slots": (37.0, {(16, 0.0): 19.0, (1, 0.0): 80.0}, (1, 0.0)),
    "a tie": (26.7, {(3, 0.0): 26.7}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("believed", [0.1, 0.6, 0.95])
def test_of_settings_that_were_measured_the_best_is_taken_and_never_one_under_plain(
    name: str, believed: float
):
    """Whatever acceptance is believed in: what was measured outranks it."""
    plain, table, best = TABLES[name]
    tried = tuple(Measured(n_max, 0, p_min, rate) for (n_max, p_min), rate in table.items())
    survival = SurvivalModel.from_counters(counted([believed**i for i in range(1, 17)]), 16)
    cost = simple_cost([40.0 + k for k in range(17)], 1.0)
    for order in (tried, tried[::-1]):
        plan = make_plan(cost, survival, trial=Trial(plain, order))
        assert plan.rate >= plain
        assert plan.speculate is (best is not None)
        if best is None:
            assert plan.rate == plain
        else:
            assert plan.scalar is not None
            assert (plan.scalar.n_max, plan.scalar.p_min) == best
            assert plan.rate == table[best]


# --- code is faster, stories are slower ---------------------------------------------------


def served(survival: list[float]) -> Model:
    """A pair whose draft step is dear, after traffic that survived so."""
    steps = [StepTime(b, 0, 38.0 + 2 * b, 0.1, 5) for b in range(1, 10)]
    draft = tuple(replace(step, ms=14.0) for step in steps)
    return after(known(target=tuple(steps), draft=draft), counted(survival), 4)


CODE, PROSE = [0.9, 0.8, 0.72, 0.65], [0.35, 0.12, 0.04, 0.01]


def test_the_setting_follows_the_text_that_is_served():
    code, prose = choose(served(CODE)), choose(served(PROSE))
    assert code.speculation.on
    assert code.plan is not None
    assert code.plan.rate > 1.2 * code.plan.plain_rate
    assert not prose.speculation.on
    assert prose.plan is not None
    assert prose.plan.rate == prose.plan.plain_rate


@pytest.mark.parametrize(("text", "gain"), [("code", 1.39), ("stories", 0.9)])
def test_what_was_measured_on_the_text_decides_for_that_text(text: str, gain: float):
    plan = make_plan(
        simple_cost([40.0, 42.0, 44.0, 46.0], 1.0),
        SurvivalModel.from_counters(counted(CODE[:3]), 3),
        trial=Trial(20.0, (Measured(3, 0, 0.0, 20.0 * gain),)),
    )
    assert plan.speculate is (gain > 1)
    assert plan.rate == 20.0 * max(gain, 1.0)


# --- sixteen busy slots -------------------------------------------------------------------


def crowded(busy: int) -> Model:
    """A target that is cheap up to 32 tokens in a batch and pays for each one beyond."""
    target = tuple(
        StepTime(b, 0, 40.0 + 0.2 * b + 6.0 * max(0, b - 32), 0.1, 5)
        for b in (*range(1, 17), 24, 32, 48, 64, 96, 128, 144)
    )
    draft = tuple(StepTime(b, 0, 2.0 + 0.05 * b, 0.01, 5) for b in (1, 2, 4, 8, 16, 32, 64, 144))
    survival = [0.9**i for i in range(1, 9)]
    return after(known(target=target, draft=draft), counted(survival), 8, busy)


def test_the_more_slots_are_busy_the_shorter_the_draft():
    chosen = [choose(crowded(busy)).speculation for busy in (1, 4, 16)]
    lengths = [one.n_max if one.on else 0 for one in chosen]
    assert lengths[0] > lengths[1] > lengths[2]
    assert lengths[0] == 8
    assert lengths[2] <= 1


def test_a_length_for_one_slot_would_lose_to_plain_at_sixteen():
    cost = cost_of(crowded(16))
    long, short = cost.verify_ms[8], cost.verify_ms[1]
    tokens = 1 + sum(0.9**i for i in range(1, 9))
    assert tokens / long < 1 / cost.plain_ms < 1.9 / short
