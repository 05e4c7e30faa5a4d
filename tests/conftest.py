"""Fixtures for every room: the real engine and models, a fake engine, isolation."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from autospec import paths
from autospec.daemon.one_thread import calm_arithmetic
from autospec.demo.assets import DemoModels, ensure_models
from autospec.errors import AutospecError

if TYPE_CHECKING:
    from autospec.engine.find import Engine

calm_arithmetic()

MODELS_FOLDER = paths.cache() / "models"
"""Resolved at import, before `isolated` points the caches elsewhere."""

ENGINES_FOLDER = paths.cache() / "engines"
TESTS = Path(__file__).parent

settings.register_profile("long", max_examples=5_000, deadline=None)
"""For `make fuzz`; a default run keeps hypothesis's own number of examples."""


def _loud(error: AutospecError, what: str) -> None:
    hint = f"\n  try: {error.hint}" if error.hint else ""
    pytest.fail(f"{what}: {error}{hint}\n  or run `make test`, which sets up both", pytrace=False)


BUILT_ON_REQUEST = {
    "engines": "llama.cpp of other ages takes 15 minutes a build: `make engines` builds and runs",
}
"""Tests that run only where their marker is asked for by name, each with its reason."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = str(config.getoption("markexpr"))
    left_out = [
        item
        for item in items
        if any(item.get_closest_marker(name) and name not in asked for name in BUILT_ON_REQUEST)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_header() -> list[str]:
    return [
        f"not run unless asked for: -m {name} ({why})" for name, why in BUILT_ON_REQUEST.items()
    ]


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The real llama.cpp; a missing one is a failure, never a skip."""
    from autospec.engine.find import find_engine  # noqa: PLC0415

    try:
        return find_engine()
    except AutospecError as error:
        _loud(error, "no engine for the real tests")
        raise


@pytest.fixture(scope="session")
def models() -> DemoModels:
    """The demo's models from the user's cache, made there if missing (about 10 s)."""
    try:
        return ensure_models(lambda *_: None, MODELS_FOLDER)
    except AutospecError as error:
        _loud(error, "no models for the real tests")
        raise


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Give each test its own folders, short enough for a UNIX socket's 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="as-") as home:
        for kind in ("CACHE", "STATE", "CONFIG"):
            monkeypatch.setenv(f"XDG_{kind}_HOME", f"{home}/{kind.lower()}")
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{home}/run")
        for name in list(os.environ):
            if name.startswith("LLAMA_") or name.endswith("_DIRECTORY") or name == "NOTIFY_SOCKET":
                monkeypatch.delenv(name)
        monkeypatch.delenv("AUTOSPEC_CONFIG", raising=False)
        if request.node.get_closest_marker("real") is None:
            monkeypatch.delenv("AUTOSPEC_ENGINE", raising=False)
        yield Path(home)


@pytest.fixture
def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class FakeEngine:
    """A folder with programs that look like llama.cpp's (see fake_server and fake_bench)."""

    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / "llama-server"

    @property
    def bench(self) -> Path:
        return self.folder / "llama-batched-bench"

    def script_server(self, **script: Any) -> None:
        """Set what the server does from its next start on."""
        self.server.with_suffix(".json").write_text(json.dumps(script))

    def script_bench(self, **script: Any) -> None:
        self.bench.with_suffix(".json").write_text(json.dumps(script))

    def starts(self) -> list[dict[str, Any]]:
        """Every start of the server so far, oldest first: `pid`, `argv`, `env`."""
        record = self.server.with_suffix(".starts.jsonl")
        lines = record.read_text().splitlines() if record.exists() else []
        return [json.loads(line) for line in lines]


LAUNCHER = """\
#!{python} -IS
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import {module}
{module}.main(Path(__file__), sys.argv[1:])
"""


@pytest.fixture
def fake_engine(tmp_path: Path) -> FakeEngine:
    folder = tmp_path / "fake-engine"
    folder.mkdir()
    fake = FakeEngine(folder)
    for program, module in ((fake.server, "fake_server"), (fake.bench, "fake_bench")):
        text = LAUNCHER.format(python=sys.executable, tests=str(TESTS), module=module)
        program.write_text(text)
        program.chmod(0o755)
    return fake
