"""Looks at everything that `autospec serve` would need, and starts nothing that stays.

Each look is guarded: what cannot be seen is a finding, and the next look follows.
"""

from __future__ import annotations

import errno
import grp
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autospec import __version__, paths
from autospec.calibration import store as calibrations
from autospec.calibration.obtain import settings_of, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.config.check import Report, check
from autospec.config.load import find_config
from autospec.config.names import ENVIRONMENT
from autospec.config.schema import Config
from autospec.config.values import Address
from autospec.daemon import engine_findings, findings, steering, unit_findings
from autospec.daemon.control import ask
from autospec.daemon.findings import Finding, Folder
from autospec.daemon.retuning.appliers import Applier
from autospec.daemon.service import Scope
from autospec.daemon.unit_findings import Unit
from autospec.engine.arguments import unknown_extra
from autospec.engine.devices import list_devices
from autospec.engine.environment import child_environment
from autospec.engine.find import Engine, find_engine
from autospec.errors import AutospecError, ConfigError, DaemonNotRunning, EngineError
from autospec.hardware.snapshot import Hardware, snapshot
from autospec.state.store import Store

_COMPILERS = ("cc", "gcc", "clang")
_LONGEST_SOCKET_PATH = 107
_WORDS = {
    errno.EADDRINUSE: "another program listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen there",
}


@dataclass(frozen=True)
class Examination:
    """All findings in the order of looking; `applier` is None without an engine that works."""

    applier: Applier | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "ok": self.ok,
            "applier": self.applier.name if self.applier else None,
            "why": self.applier.why if self.applier else None,
            "findings": [asdict(finding) for finding in self.findings],
        }


def examine(config_file: Path | None = None, engine_path: Path | None = None) -> Examination:
    """Look at engine, devices, configuration, models, calibrations, addresses and folders.

    `config_file` and `engine_path` are what the user named. Raises nothing that a user causes.
    """
    config, found = _configuration(config_file)
    engine, seen = _engine(engine_path or (config.engine.path if config else None))
    live = config is not None and config.engine.live_policy == "auto"
    applier = steering.applier_of(engine, live=live) if engine else None
    hardware = snapshot()
    stray = child_environment(os.environ, {})[1]
    daemon, answer = _daemon()
    if engine is not None and applier is not None:
        seen += engine_findings.about_engine(engine, config)
        seen.append(Finding("ok", "applier", f"{applier.name}: {applier.why}"))
        seen += _devices(engine, hardware)
    seen += found
    if config is not None:
        if engine is not None:
            seen += _models(config, engine, hardware, stray)
        seen += _addresses(config, answer)
        seen += _key_file(config)
    seen += [findings.about_folder(folder) for folder in _folders()]
    seen.append(findings.about_environment(stray))
    seen += findings.about_passed_on(os.environ, gpu=bool(hardware.gpus))
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    seen.append(findings.about_compiler(compiler, needed=live))
    seen += unit_findings.about_units(_units(), gpu=bool(hardware.gpus))
    seen += daemon if daemon is not None else findings.about_daemon(answer, engine)
    return Examination(applier, tuple(seen))


def _configuration(named: Path | None) -> tuple[Config | None, list[Finding]]:
    subject = "configuration"
    try:
        report: Report = check(path := find_config(named))
    except ConfigError as error:
        wanted = named is not None or ENVIRONMENT in os.environ
        return None, [findings.of_error(subject, error, "error" if wanted else "warning")]
    faults = [
        Finding("error", subject, str(fault), "autospec schema --example shows every option")
        for fault in report.faults
    ]
    return report.config, faults or [Finding("ok", subject, f"{path} has no faults")]


def _engine(explicit: Path | None) -> tuple[Engine | None, list[Finding]]:
    try:
        return find_engine(explicit), []
    except EngineError as error:
        return None, [findings.of_error("engine", error)]


def _devices(engine: Engine, hardware: Hardware) -> Iterator[Finding]:
    try:
        devices = list_devices(engine)
    except EngineError as error:
        yield findings.of_error("devices", error, "warning")
        devices = None
    yield from engine_findings.about_devices(hardware, devices)


def _models(
    config: Config, engine: Engine, hardware: Hardware, stray: tuple[str, ...]
) -> Iterator[Finding]:
    for name, model in config.enabled_models().items():
        launch = model.launch(name)
        if strange := unknown_extra(engine, launch.extra):
            yield from engine_findings.about_extra(name, strange)
            launch = replace(launch, extra=())  # so that the files are looked at all the same
        try:
            prepared = prepare(engine, launch, config.engine.environment)
        except AutospecError as error:
            yield findings.of_error(f"model {name}", error)
            continue
        yield from engine_findings.about_model(prepared, model, stray)
        if launch.has_draft and engine.batched_bench is not None and not strange:
            yield from _calibration(prepared, config, hardware)


def _calibration(prepared: Prepared, config: Config, hardware: Hardware) -> Iterator[Finding]:
    name, settings = prepared.launch.name, settings_of(config)
    said: list[str] = []
    try:
        with Store.reading(say=said.append) as store:
            known = stored(store, prepared, settings, hardware.key())
            earlier = known is None and calibrations.any_of(store, name)
    except OSError as error:
        yield Finding("warning", f"calibration {name}", f"cannot be read: {error}")
        return
    for sentence in said:
        yield Finding("warning", "state", sentence, "the next start of the daemon mends it")
    yield engine_findings.about_calibration(
        name, known, settings.budget, time.time(), earlier=earlier
    )


def _units() -> list[Unit]:
    groups = {group.gr_name for group in grp.getgrall()}
    units = (unit_findings.look(Scope.of(user=user), groups) for user in (False, True))
    return [unit for unit in units if unit is not None]


def _daemon() -> tuple[list[Finding] | None, dict[str, Any] | None]:
    """What the running daemon reports, or findings that say why it does not."""
    try:
        return None, ask({"op": "status"})
    except DaemonNotRunning:
        return None, None
    except AutospecError as error:
        return [findings.of_error("daemon", error, "warning")], None


def _addresses(config: Config, answer: dict[str, Any] | None) -> Iterator[Finding]:
    ours = {model.get("address"): model.get("pid") for model in (answer or {}).get("models", [])}
    for name in config.enabled_models():
        address = config.address(name)
        pid = ours.get(address.url)
        yield findings.about_address(name, address, None if pid else listening_fault(address), pid)


def listening_fault(address: Address) -> str | None:
    """Why nobody can start to listen at `address` now; None if one can."""
    if address.socket is not None:
        return _socket_fault(address.socket)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen(1)
    except (OSError, UnicodeError) as error:
        code = getattr(error, "errno", None)
        return _WORDS.get(code or 0) or getattr(error, "strerror", None) or str(error)
    return None


def _socket_fault(path: Path) -> str | None:
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        return f"a socket's path has at most {_LONGEST_SOCKET_PATH} bytes"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"{path.parent} is missing, or this user may not write there"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return None
    return _WORDS[errno.EADDRINUSE]


def _key_file(config: Config) -> Iterator[Finding]:
    path = config.server.api_key_file
    if path is not None:
        try:
            yield findings.about_key_file(path, stat.S_IMODE(path.stat().st_mode))
        except OSError as error:
            yield Finding("error", "keys", f"{path}: {error.strerror}")


def _folders() -> Iterator[Folder]:
    places = {"state": paths.state(), "cache": paths.cache(), "runtime": paths.runtime()}
    for name, path in places.items():
        parent = path.parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        try:
            there = path.stat()
        except OSError:
            able = os.access(parent, os.W_OK | os.X_OK) and not path.is_symlink()
            yield Folder(name, path, None, ours=True, writable=able, parent=parent)
            continue
        able = stat.S_ISDIR(there.st_mode) and os.access(path, os.W_OK | os.X_OK)
        yield Folder(
            name, path, stat.S_IMODE(there.st_mode), there.st_uid == os.getuid(), able, parent
        )
