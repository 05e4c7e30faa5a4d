"""Configurations that are refused, and what they are refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from autospec.config.faults import ConfigFaults, Fault
from autospec.config.load import parse

PATH = Path("/nowhere/autospec.toml")
MODEL = '[models.chat]\nhf = "a/b"\n'


def faults(text: str, path: Path = PATH) -> tuple[Fault, ...]:
    with pytest.raises(ConfigFaults) as raised:
        parse(text, path=path)
    return raised.value.faults


def fault(text: str, path: Path = PATH) -> Fault:
    (only,) = faults(text, path)
    return only
