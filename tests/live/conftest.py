"""Fixtures of the live library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from native_live import SANITIZERS, Stage, compiled


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("native"), "-O2")


@pytest.fixture(scope="session")
def sanitized_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("sanitized"), *SANITIZERS)


@pytest.fixture
def stage(driver: Path) -> Iterator[Stage]:
    stage = Stage(driver)
    yield stage
    stage.close()


@pytest.fixture
def sanitized(sanitized_driver: Path) -> Iterator[Stage]:
    stage = Stage(sanitized_driver)
    yield stage
    stage.close()
