"""Fixtures of the live library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_rounds import DRAFT
from live_server import Asked, asked
from native_live import SANITIZERS, Stage, compiled

from autospec.demo.assets import DemoModels
from autospec.engine.find import Engine
from autospec.engine.live.applier import LiveSession, live_speculation


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


@pytest.fixture
def pair(models: DemoModels) -> tuple[Path, Path]:
    return models.draft, models.draft_one_dropped


@pytest.fixture
def session() -> Iterator[LiveSession]:
    session = LiveSession.open()
    yield session
    session.close()


@pytest.fixture
def live(engine: Engine, pair: tuple[Path, Path], session: LiveSession) -> Iterator[Asked]:
    with asked(engine, pair, live_speculation(DRAFT), session=session) as server:
        yield server
