"""Installing and removing autospec as a service: first a plan of steps, then the steps.

A plan is made from what is there and changes nothing, so that it can be shown. Steps that have
nothing to do say so; doing a plan twice is doing it once.
"""

from __future__ import annotations

import contextlib
import grp
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from autospec import paths
from autospec.daemon import units
from autospec.daemon.units import GPU_DROP_IN, UNIT, Condition
from autospec.errors import AutospecError

_SECONDS = 90.0
Kind = Literal["write", "remove", "run", "keep", "note"]


@dataclass(frozen=True)
class Step:
    """`write` puts `text` into `path`, `remove` deletes it, `run` starts `argv`.

    `keep` and `note` do nothing and say why. `may_fail`: a failure of `argv` is of no account.
    """

    kind: Kind
    says: str
    path: Path | None = None
    text: str | None = None
    argv: tuple[str, ...] = ()
    may_fail: bool = False

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path) if self.path else None}


@dataclass(frozen=True)
class Scope:
    """Whose service: the machine's, or one user's. `folder` is where its units are put."""

    user: bool
    folder: Path
    config: Path

    @classmethod
    def of(cls, *, user: bool) -> Scope:
        if not user:
            return cls(False, Path("/etc/systemd/system"), Path("/etc/autospec/autospec.toml"))
        home = paths.user_config()
        return cls(True, home / "systemd/user", home / "autospec/autospec.toml")

    def systemctl(self, *words: str) -> tuple[str, ...]:
        return ("systemctl", *(("--user",) if self.user else ()), *words)


def install_plan(scope: Scope, command: Sequence[str], *, gpu: bool) -> list[Step]:
    """What makes `command` the service of `scope`. OSError where a file cannot be read."""
    groups = {group.gr_name for group in grp.getgrall()}
    steps = [_placed(scope, UNIT, command, groups)]
    if not scope.user and (gpu or (scope.folder / GPU_DROP_IN).exists()):
        steps.append(_placed(scope, GPU_DROP_IN, command, groups))
    if any(step.kind == "write" for step in steps):
        reload = scope.systemctl("daemon-reload")
        steps.append(Step("run", "let systemd read its units again", argv=reload))
    start = scope.config.exists()
    enable = scope.systemctl("enable", *(("--now",) if start else ()), UNIT)
    when = "now and at boot" if start else "at boot"
    steps.append(Step("run", f"start it {when}", argv=enable))
    if not start:
        with_sudo = "" if scope.user else "sudo "
        steps.append(
            Step(
                "note",
                f"no {scope.config} yet: write it (autospec import helps), then "
                f"{with_sudo}{' '.join(scope.systemctl('start', 'autospec'))}",
            )
        )
    elif steps[0].kind == "write" and _read(scope.folder / UNIT) is not None:
        restart = " ".join(scope.systemctl("restart", "autospec"))
        steps.append(Step("note", f"a service that runs already takes the new unit by: {restart}"))
    if scope.user:
        steps.append(Step("note", "to serve without being logged in: loginctl enable-linger"))
    return steps


def uninstall_plan(scope: Scope, *, purge: bool) -> list[Step]:
    """What takes the service of `scope` away; with `purge` also what it measured and learned."""
    found = {name: _read(scope.folder / name) for name in (GPU_DROP_IN, UNIT)}
    if all(text is None for text in found.values()):
        return [Step("keep", f"no autospec service is in {scope.folder}")]
    steps = [
        Step(
            "run",
            "stop it, now and at boot",
            argv=scope.systemctl("disable", "--now", UNIT),
            may_fail=found[UNIT] is None,
        ),
        Step(
            "run",
            "forget how it ended",
            argv=scope.systemctl("reset-failed", UNIT),
            may_fail=True,
        ),
    ]
    if purge:
        kinds = ("cache", "runtime") if scope.user else ("state", "cache", "runtime")
        clean = scope.systemctl("clean", *(f"--what={kind}" for kind in kinds), UNIT)
        steps.append(Step("run", "remove what it measured and learned", argv=clean))
    for name, text in found.items():
        path = scope.folder / name
        if text is not None and units.ours(text):
            steps.append(Step("remove", f"remove {path}", path))
        elif text is not None:
            steps.append(Step("keep", f"{path} was edited: it is left, remove it yourself", path))
    steps.append(
        Step("run", "let systemd read its units again", argv=scope.systemctl("daemon-reload"))
    )
    if scope.config.exists():
        steps.append(Step("keep", f"your configuration stays: {scope.config}", scope.config))
    return steps


def _placed(scope: Scope, name: str, command: Sequence[str], groups: set[str]) -> Step:
    path = scope.folder / name
    text = units.filled_in(units.template(name, user=scope.user), command, groups)
    wanted = units.stamped(text)
    match units.condition(_read(path), wanted):
        case Condition.CURRENT:
            return Step("keep", f"{path} is as it should be", path)
        case Condition.EDITED:
            edit = " ".join(scope.systemctl("edit", "autospec"))
            return Step(
                "keep",
                f"{path} was edited, and is left as it is: move your changes into a file of "
                f"their own (`{edit}`), remove {path}, and install again",
                path,
            )
        case Condition.OUTDATED:
            return Step("write", f"bring {path} up to date", path, wanted)
        case Condition.ABSENT:
            return Step("write", f"write {path}", path, wanted)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def carry_out(steps: Sequence[Step]) -> Iterator[Step]:
    """Do the steps in order, yielding each when it is done. AutospecError at the first failure."""
    for step in steps:
        try:
            _do(step)
        except (OSError, subprocess.SubprocessError) as error:
            raise AutospecError(f"could not {step.says}: {error}", hint=_way_out(error)) from error
        yield step


def _do(step: Step) -> None:
    if step.kind == "write":
        assert step.path is not None
        assert step.text is not None
        step.path.parent.mkdir(parents=True, exist_ok=True)
        incoming = step.path.with_name(f".{step.path.name}.incoming")
        incoming.write_text(step.text, encoding="utf-8")
        incoming.chmod(0o644)
        incoming.replace(step.path)
    elif step.kind == "remove":
        assert step.path is not None
        step.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files are in it, or it never was
            own = step.path.name == UNIT
            (step.path.with_name(f"{UNIT}.d") if own else step.path.parent).rmdir()
    elif step.kind == "run":
        ran = subprocess.run(
            step.argv, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if ran.returncode and not step.may_fail:
            said = ran.stderr.strip() or f"exit code {ran.returncode}"
            raise OSError(f"{' '.join(step.argv)}: {said}")


def _way_out(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "do it as root (sudo), or install for yourself alone with --user"
    if isinstance(error, FileNotFoundError):
        return "this machine does not seem to run systemd: start `autospec serve` from what it has"
    return "journalctl -u autospec -e shows what systemd and autospec said"


def start_command() -> tuple[str, ...]:
    """The command line of the service, by absolute paths: this very installation."""
    script = Path(sys.prefix) / "bin/autospec"
    if script.is_file():
        return (str(script), "serve")
    return (sys.executable, "-m", "autospec", "serve")


def refuse_unreachable(command: Sequence[str]) -> None:
    """AutospecError where the user of a system service could not start `command`.

    It runs as a user of its own, who must be able to go through every folder on the way to the
    program and to the interpreter behind it.
    """
    for program in {Path(command[0]), Path(sys.executable), Path(sys.executable).resolve()}:
        for place in (program, *program.parents):
            if not place.stat().st_mode & stat.S_IXOTH:
                raise AutospecError(
                    f"{program} cannot be started by the service: {place} is closed to others",
                    hint="install autospec where every user can reach it (pipx install --global), "
                    "or make it your own service with --user",
                )


def refuse_without_systemd() -> None:
    if shutil.which("systemctl") is None:
        raise AutospecError("there is no systemctl", hint=_way_out(FileNotFoundError()))


def refuse_without_rights(scope: Scope) -> None:
    if not scope.user and os.geteuid() != 0:
        raise AutospecError(f"{scope.folder} belongs to root", hint=_way_out(PermissionError()))
