"""What the doctor thinks of autospec as a service: the unit's file, and what systemd says of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autospec.daemon.findings import Finding
from autospec.daemon.service import Scope
from autospec.daemon.units import (
    GPU_DROP_IN,
    UNIT,
    Condition,
    condition,
    filled_in,
    stamped,
    template,
)

_ASKED = ("ActiveState", "Result", "UnitFileState", "NRestarts", "NeedDaemonReload", "StatusText")
_SECONDS = 10.0
_START = re.compile(
    r'^ExecStart=(?:"(?P<quoted>(?:[^"\\\n]|\\.)*)"|(?P<bare>\S+)).*$', re.MULTILINE
)


@dataclass(frozen=True)
class Unit:
    """A unit as it lies there. `told` is what systemd says of it, empty where it says nothing.

    `condition` is against what this autospec would write for the command that the file starts;
    `program` is the first word of that command, `gpu_opened`: the file for GPUs lies beside it.
    """

    scope: Scope
    path: Path
    condition: Condition
    program: Path | None
    gpu_opened: bool
    told: Mapping[str, str]


def look(scope: Scope, groups: set[str]) -> Unit | None:
    """The unit of this scope, None where none is installed (or may not be read)."""
    path = scope.folder / UNIT
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    start = _START.search(text)
    wanted = stamped(_START.sub(lambda _: start[0] if start else "", _template(scope, groups)))
    return Unit(
        scope,
        path,
        condition(text, wanted),
        _program(start) if start else None,
        (scope.folder / GPU_DROP_IN).exists(),
        _show(scope),
    )


def _template(scope: Scope, groups: set[str]) -> str:
    return filled_in(template(UNIT, user=scope.user), ("/",), groups)


def _program(start: re.Match[str]) -> Path:
    """The program that the line starts, as systemd reads it."""
    word = re.sub(r"\\(.)", r"\1", start["quoted"]) if start["quoted"] else start["bare"]
    return Path(word.replace("%%", "%").replace("$$", "$"))


def _show(scope: Scope) -> dict[str, str]:
    argv = scope.systemctl("show", "--property", ",".join(_ASKED), UNIT)
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return {}
    return dict(line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line)


def about_units(units: list[Unit], *, gpu: bool) -> Iterator[Finding]:
    """`units` are those that are installed, `gpu`: this machine has one."""
    if not units:
        yield Finding(
            "note", "service", "no service of systemd is installed", "autospec service install"
        )
    for unit in units:
        yield from _about(unit, gpu=gpu)


def _about(unit: Unit, *, gpu: bool) -> Iterator[Finding]:
    subject = "user service" if unit.scope.user else "service"
    install = f"autospec service install{' --user' if unit.scope.user else ''}"
    systemctl = " ".join(unit.scope.systemctl())
    journal = f"journalctl {'--user ' if unit.scope.user else ''}-u autospec -e"
    told = unit.told
    if unit.program is not None and not unit.program.exists():
        yield Finding(
            "error", subject, f"{unit.path} starts {unit.program}, which is gone", install
        )
    if unit.condition is Condition.EDITED:
        yield Finding(
            "note",
            subject,
            f"{unit.path} was edited: `{install}` leaves it as it is",
            f"{systemctl} edit autospec keeps changes in a file of their own",
        )
    elif unit.condition is Condition.OUTDATED:
        yield Finding("warning", subject, f"{unit.path} is of another version", install)
    if gpu and not unit.scope.user and not unit.gpu_opened:
        yield Finding(
            "warning", subject, "this machine has a GPU, which the unit shuts out", install
        )
    if told.get("NeedDaemonReload") == "yes":
        yield Finding(
            "warning",
            subject,
            "systemd has yet to read its new file",
            f"{systemctl} daemon-reload",
        )
    if told.get("UnitFileState") == "disabled":
        yield Finding("note", subject, "it is not started at boot", f"{systemctl} enable autospec")
    state, restarts = told.get("ActiveState", ""), told.get("NRestarts", "0")
    if state == "failed":
        yield Finding("error", subject, f"it has failed: {told.get('Result', 'unknown')}", journal)
    elif restarts not in ("", "0"):
        yield Finding("warning", subject, f"systemd has restarted it {restarts} times", journal)
    elif state == "active":
        said = told.get("StatusText", "")
        yield Finding("ok", subject, f"it runs{': ' if said else ''}{said}")
    else:
        words = f"it is {state}" if state else "systemd does not answer"
        yield Finding("note", subject, words, f"{systemctl} start autospec")
