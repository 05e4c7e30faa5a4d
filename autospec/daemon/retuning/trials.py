"""Settings that measured slower than plain decoding, and where. Values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autospec.daemon.setting import Basis

_OCTAVES = 2


@dataclass(frozen=True)
class Regime:
    """A load, and a depth to within a factor of four."""

    busy: int
    depth: int

    @classmethod
    def of(cls, basis: Basis) -> Regime:
        return cls(basis.busy, int(math.log2(1.0 + basis.depth / 64.0) / _OCTAVES))

    def __str__(self) -> str:
        low = 64 * (2 ** (_OCTAVES * self.depth) - 1)
        high = 64 * (2 ** (_OCTAVES * (self.depth + 1)) - 1)
        slots = "1 busy slot" if self.busy == 1 else f"{self.busy} busy slots"
        return f"{slots}, depth {low} to {high}"


@dataclass(frozen=True)
class Trial:
    """Measured over plain decoding's speed, and over what was predicted."""

    over_plain: float
    over_predicted: float


@dataclass(frozen=True)
class Trials:
    """What failed, by option and regime, since something changed last."""

    failed: Mapping[tuple[str, Regime], Trial] = field(default_factory=lambda: MappingProxyType({}))

    def blamed(self, option: str, regime: Regime, trial: Trial) -> Trials:
        return Trials(MappingProxyType({**self.failed, (option, regime): trial}))

    def bars(self, option: str, regime: Regime) -> bool:
        """Whether `option` was tried in this regime, and failed."""
        return (option, regime) in self.failed

    def correction(self, regime: Regime) -> float:
        """What predictions of speculation are worth here: never more than they say."""
        ratios = [one.over_predicted for (_, at), one in self.failed.items() if at == regime]
        return min([1.0, *ratios])
