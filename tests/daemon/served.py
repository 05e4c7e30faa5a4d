"""`autospec serve` as a program of its own, and what tests ask it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from autospec.daemon.control import ask
from autospec.errors import AutospecError

PATIENCE = 60.0


def until(reached: Callable[[], Any], told: Callable[[], str] = lambda: "") -> Any:
    """Wait for something true and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
    return found


class Served:
    """A daemon that was started with `arguments` after `autospec serve`."""

    def __init__(self, log: Path, *arguments: str, **env: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "autospec", "serve", *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def status(self) -> dict[str, Any] | None:
        """What `autospec status --json` prints; None before there is something to tell."""
        try:
            return ask({"op": "status"})
        except AutospecError:
            assert self.process.poll() is None, self.output
            return None

    def model(self, name: str = "chat") -> dict[str, Any] | None:
        models = (self.status() or {"models": []})["models"]
        return next((model for model in models if model["name"] == name), None)

    def until(self, state: str, name: str = "chat") -> dict[str, Any]:
        """Wait until the model is in `state`, and return what is told of it then."""

        def reached() -> dict[str, Any] | None:
            model = self.model(name)
            return model if model and model["state"] == state else None

        return until(reached, lambda: self.output)

    def child(self, name: str = "chat") -> psutil.Process:
        model = self.model(name)
        assert model is not None
        return psutil.Process(model["pid"])

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
