"""What `autospec check` has to say about a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autospec.config.faults import ConfigFaults, Fault
from autospec.config.load import load
from autospec.config.schema import Config


@dataclass(frozen=True)
class Report:
    """The `config` of a file, or its `faults` in the order of lines."""

    path: Path
    config: Config | None
    faults: tuple[Fault, ...] = ()

    def lines(self) -> Iterator[str]:
        yield from map(str, self.faults)
        if self.config is not None:
            yield f"{self.path}: no faults"
            for name, address in self.config.addresses().items():
                enabled = "" if self.config.models[name].enabled else " (disabled)"
                yield f"  {name}: {address.url}{enabled}"

    def as_json(self) -> dict[str, Any]:
        addresses = self.config.addresses() if self.config else {}
        return {
            "file": str(self.path),
            "ok": not self.faults,
            "faults": [fault.as_json() for fault in self.faults],
            "models": {name: address.url for name, address in addresses.items()},
        }


def check(path: Path) -> Report:
    """Load the file `path` and report; a file that cannot be read at all is a ConfigError."""
    try:
        return Report(path, load(path))
    except ConfigFaults as error:
        return Report(path, None, error.faults)
