"""How a choice reaches an engine, by what its build can do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from autospec.daemon.retuning.appliers import VARIABLE, Choice, Live, RequestFields, applier
from autospec.engine.capabilities import DRAFT_SIMPLE, capabilities
from autospec.engine.live.policy import at_most
from autospec.tuning.cost import simple_cost
from autospec.tuning.projection import best_scalar
from autospec.tuning.survival import SurvivalModel

STOCK = capabilities({})
COST = simple_cost([10.0, 11.0, 12.0, 13.0, 14.0], 1.0)
SURVIVAL = SurvivalModel.prior(4)
CHOICE = Choice(best_scalar(COST, SURVIVAL, p_min=0.4), COST, SURVIVAL, longest=4)


def test_flags_carry_the_triple_and_change_by_a_restart() -> None:
    by = applier(STOCK, live=False, refusal=None)
    assert (by.name, by.needs_restart) == ("scalar", True)
    assert "the live policy is off" in by.why
    assert "reads no cost vector" in by.why
    carried = by.launch(CHOICE)
    speculation = carried.speculation
    assert speculation.types == (DRAFT_SIMPLE,)
    assert (speculation.n_max, speculation.p_min) == (CHOICE.scalar.n_max, 0.4)
    assert not carried.environment
    assert not by.put(CHOICE)


def test_a_build_that_reads_a_cost_vector_is_given_the_best_one_in_its_environment() -> None:
    by = applier(replace(STOCK, cost_vector=True), live=False, refusal=None)
    assert (by.name, by.needs_restart) == ("cost-vector", True)
    carried = by.launch(CHOICE)
    values = [float(value) for value in carried.environment[VARIABLE].split(",")]
    assert len(values) == COST.n_max + 1
    assert values[0] == 1.0
    assert (carried.speculation.n_max, carried.speculation.p_min) == (4, 0.0)
    assert not by.put(CHOICE)


def test_a_build_that_honours_request_fields_gets_another_triple_without_a_restart() -> None:
    able = replace(STOCK, request_fields=True)
    alone = applier(able, live=False, refusal=None)
    assert alone.name == "scalar"
    assert "not added by anybody" in alone.why
    by = applier(able, live=False, refusal=None, added=True)
    assert isinstance(by, RequestFields)
    assert not by.needs_restart
    assert by.fields is None
    assert by.launch(CHOICE).speculation.n_max == 4
    other = replace(CHOICE, scalar=replace(CHOICE.scalar, n_max=2, p_min=0.7))
    assert by.put(other)
    assert by.fields == {
        "speculative.n_max": 2,
        "speculative.n_min": CHOICE.scalar.n_min,
        "speculative.p_min": 0.7,
    }


def test_the_live_policy_is_used_where_it_was_asked_for_and_can_be_had() -> None:
    by = applier(STOCK, live=True, refusal=None)
    assert isinstance(by, Live)
    assert not by.needs_restart
    assert by.launch(CHOICE).speculation.n_max == 4
    put: list[Any] = []
    by.session = SimpleNamespace(put=put.append)  # type: ignore[assignment]
    table = at_most(2, 4)
    assert not by.put(CHOICE)
    assert by.put(replace(CHOICE, table=table))
    assert put == [table]


@pytest.mark.parametrize("ability", ["cost_vector", "request_fields"])
def test_what_was_refused_is_said_and_the_next_best_way_is_taken(ability: str) -> None:
    refused = applier(STOCK, live=True, refusal="this engine is linked statically")
    assert refused.name == "scalar"
    assert "linked statically" in refused.why
    able = applier(replace(STOCK, **{ability: True}), live=True, refusal="no compiler", added=True)
    assert able.name == ability.replace("_", "-")
    assert "no compiler" in able.why
