"""The rules of llama.cpp pull requests 14132 and 17034, beside the optimal one.

Both stop drafting where the product of the draft's probabilities falls under what a token costs
*on average* in the batch that it makes: the first by a fitted power law, the second by the
measured vector. The optimum compares with the *marginal* cost, in units of the best rate, and
looks past jags (see `autospec.tuning.stopping`). Here they meet on one curve, with acceptance
that is constant and known, so nothing is left to luck: a rule drafts a fixed number of tokens.

Source of the rules: https://github.com/ggml-org/llama.cpp/pull/14132 and …/17034, descriptions.
What those leave open is taken in the rules' favour: a draft is not judged before it has
`draft-min` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autospec.tuning.cost import RoundCost, simple_cost
from autospec.tuning.powerlaw import PowerLaw, check_curve
from autospec.tuning.stopping import solve
from autospec.tuning.survival import SurvivalModel

ACCEPTANCES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Outcome:
    """What a rule does: tokens drafted a round, and the rate in units of plain decoding."""

    drafted: float
    speedup: float


@dataclass(frozen=True)
class Verdict:
    """The rules at one acceptance. `law` is None where the curve has no power law."""

    acceptance: float
    law: Outcome | None
    average: Outcome
    optimal: Outcome

    @property
    def loss(self) -> float:
        """The share of the optimal rate that the better of the old rules loses, 0 to 1."""
        old = max(self.average.speedup, self.law.speedup if self.law else 0.0)
        return max(0.0, 1 - old / self.optimal.speedup)


def rule_14132(law: PowerLaw, survival: Sequence[float]) -> int:
    """How many tokens the rule of pull request 14132 sends to the target.

    `survival[i]` is the product of the first i+1 reported probabilities. At least `skip` tokens
    are drafted; from then on a token is kept while the survival that includes it is not under
    the law at the batch it makes. A draft shorter than `skip` is thrown away.
    """
    kept = max(law.skip - 1, 0)
    if len(survival) <= kept:
        return 0
    while kept < len(survival) and survival[kept] >= law.relative_cost(kept + 2):
        kept += 1
    return kept if kept >= law.skip else 0


def rule_17034(relative_cost: Sequence[float], survival: Sequence[float]) -> int:
    """How many tokens the rule of pull request 17034 sends to the target.

    `relative_cost[i]` belongs to a batch of i+1 tokens and `survival` is as in `rule_14132`:
    the draft ends before the first token whose survival is under the average cost of a token in
    the batch that it makes.
    """
    kept = 0
    while kept < min(len(survival), len(relative_cost) - 1) and (
        survival[kept] >= relative_cost[kept + 1]
    ):
        kept += 1
    return kept


def verdicts(
    relative_cost: Sequence[float],
    law: PowerLaw | None,
    *,
    draft_cost: float = 0.0,
    acceptances: Sequence[float] = ACCEPTANCES,
) -> list[Verdict]:
    """Every rule on one curve, at each acceptance.

    `draft_cost` is the time of one draft step in units of plain decoding's step. The optimal
    rule has plain decoding as one of its actions. ValueError for an unusable curve.
    """
    y = check_curve(relative_cost)
    if not 0 <= draft_cost < 100:
        raise ValueError("a draft step costs between 0 and 100 plain steps")
    cost = simple_cost([float(y[k] * (k + 1)) for k in range(y.size)], draft_cost)
    return [_verdict(relative_cost, law, cost, acceptance) for acceptance in acceptances]


def _verdict(
    relative_cost: Sequence[float], law: PowerLaw | None, cost: RoundCost, acceptance: float
) -> Verdict:
    survival = [acceptance**i for i in range(1, cost.n_max + 1)]
    average = rule_17034(relative_cost, survival)
    by_law = None
    if law is not None:
        kept = rule_14132(law, survival)
        by_law = _outcome(cost, survival, kept, paid=max(kept, law.skip - 1) + 1)
    policy = solve(cost, SurvivalModel.constant([acceptance] * cost.n_max))
    plain = policy.plain_rate >= policy.rate
    return Verdict(
        acceptance,
        by_law,
        _outcome(cost, survival, average, paid=average + 1),
        Outcome(0.0, 1.0)
        if plain
        else Outcome(policy.mean_drafted, policy.rate / policy.plain_rate),
    )


def _outcome(cost: RoundCost, survival: Sequence[float], kept: int, *, paid: int) -> Outcome:
    """Sending `kept` tokens to the target after `paid` draft steps, or all there are."""
    time = cost.draft_ms[min(paid, cost.n_max)] + cost.verify_ms[kept]
    return Outcome(kept, float((1 + sum(survival[:kept])) * cost.plain_ms / time))
