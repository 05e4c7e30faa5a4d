"""What each cause of death calls for: one table, and nothing else decides it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from autospec.engine.failures import ExitKind


class Treatment(StrEnum):
    """`RETRY`: the same again, after a pause. `AT_ONCE`: the engine is not at fault, so a child
    that served is followed by the next without a pause. `STEP_DOWN`: with less. `FINAL`: the
    same would happen again, so only a change by the user helps."""

    RETRY = "retry"
    AT_ONCE = "at once"
    STEP_DOWN = "step down"
    FINAL = "final"


TREATMENTS: Mapping[ExitKind, Treatment] = MappingProxyType(
    {
        "clean": Treatment.RETRY,
        "bad_flag": Treatment.FINAL,
        "missing_model": Treatment.FINAL,
        "bad_model": Treatment.FINAL,
        "download_failed": Treatment.RETRY,
        "vocabulary_mismatch": Treatment.FINAL,
        "missing_library": Treatment.FINAL,
        "illegal_instruction": Treatment.FINAL,
        "out_of_memory": Treatment.STEP_DOWN,
        "cannot_listen": Treatment.RETRY,
        "device_failed": Treatment.RETRY,
        "assertion": Treatment.RETRY,
        "worker_lost": Treatment.RETRY,
        "worker_unfit": Treatment.FINAL,
        "killed": Treatment.AT_ONCE,
        "terminated": Treatment.AT_ONCE,
        "crash": Treatment.RETRY,
        "wedged": Treatment.RETRY,
        "unable": Treatment.FINAL,
        "unknown": Treatment.RETRY,
    }
)
