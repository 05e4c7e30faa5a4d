"""What `autospec check` has to say about a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autospec.config.faults import ConfigFaults, Fault
from autospec.config.load import load
from autospec.config.schema import Config
from autospec.engine.compatibility import Severity
from autospec.engine.launch import Launch
from autospec.engine.model_files import look_at
from autospec.errors import ConfigError, ModelError


@dataclass(frozen=True)
class FileNote:
    """What is wrong with the files of `model`, found by reading their headers.

    `error`: it cannot be served so. `warning`: it can, to no good.
    """

    model: str
    severity: Severity
    sentence: str
    hint: str | None

    def __str__(self) -> str:
        return f"{self.model}: {self.severity}: {self.sentence}" + (
            f" (try: {self.hint})" if self.hint else ""
        )


@dataclass(frozen=True)
class Report:
    """The `config` of a file and `notes` on its models' files, or its `faults` by line."""

    path: Path
    config: Config | None
    faults: tuple[Fault, ...] = ()
    notes: tuple[FileNote, ...] = ()

    @property
    def exit_code(self) -> int:
        if self.faults:
            return ConfigError.exit_code
        broken = any(note.severity == "error" for note in self.notes)
        return ModelError.exit_code if broken else 0

    def lines(self) -> Iterator[str]:
        yield from map(str, self.faults)
        if self.config is not None:
            yield f"{self.path}: no faults"
            for name, address in self.config.addresses().items():
                enabled = "" if self.config.models[name].enabled else " (disabled)"
                yield f"  {name}: {address.url}{enabled}"
            yield from map(str, self.notes)

    def as_json(self) -> dict[str, Any]:
        addresses = self.config.addresses() if self.config else {}
        return {
            "file": str(self.path),
            "ok": self.exit_code == 0,
            "faults": [fault.as_json() for fault in self.faults],
            "models": {name: address.url for name, address in addresses.items()},
            "files": [asdict(note) for note in self.notes],
        }


def check(path: Path) -> Report:
    """Load the file `path` and report; a file that cannot be read at all is a ConfigError."""
    try:
        return Report(path, load(path))
    except ConfigFaults as error:
        return Report(path, None, error.faults)


def check_files(report: Report) -> Report:
    """`report` with what the headers of its enabled models' files tell."""
    models = report.config.enabled_models() if report.config else {}
    return replace(
        report,
        notes=tuple(note for name, model in models.items() for note in _notes(model.launch(name))),
    )


def _notes(launch: Launch) -> Iterator[FileNote]:
    try:
        problems = look_at(launch).problems
    except ModelError as error:
        yield FileNote(launch.name, "error", str(error), error.hint)
    else:
        for problem in problems:
            yield FileNote(launch.name, problem.severity, problem.sentence, problem.hint)
