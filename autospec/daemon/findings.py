"""What the doctor thinks of what it saw. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autospec import __version__
from autospec.config.values import Address
from autospec.engine.find import Engine
from autospec.errors import AutospecError

Level = Literal["ok", "note", "warning", "error"]

_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_WORLD_READS = 0o004
_LIBRARIES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")
_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Finding:
    """One sentence about `subject`; `remedy` says what to do where something is to be done."""

    level: Level
    subject: str
    sentence: str
    remedy: str | None = None


@dataclass(frozen=True)
class Folder:
    """A folder of autospec's as it lies there; `mode` is None while it does not exist.

    `ours`: it belongs to this user. `writable`: this user can write into it or, while it does
    not exist, make it. `parent` is the nearest folder that exists.
    """

    name: str
    path: Path
    mode: int | None
    ours: bool
    writable: bool
    parent: Path


def of_error(subject: str, error: AutospecError, level: Level = "error") -> Finding:
    """`error` as a finding; its sentence may name the model, which `subject` does already."""
    sentence = str(error).removeprefix(f"{subject.partition(' ')[2]}: ")
    return Finding(level, subject, sentence, error.hint)


def about_address(name: str, address: Address, fault: str | None, ours: int | None) -> Finding:
    """`fault` says why one cannot listen there now, `ours` which child of the daemon does."""
    subject = f"address {name}"
    if ours is not None:
        return Finding("ok", subject, f"{address.url} is served (llama-server, pid {ours})")
    if fault is not None:
        return Finding(
            "error",
            subject,
            f"{address.url}: {fault}",
            f"free it, or set models.{name}.listen to another address",
        )
    return Finding("ok", subject, f"{address.url} is free")


def about_daemon(report: dict[str, Any] | None, engine: Engine | None) -> Iterator[Finding]:
    """`report` is what the running daemon answers, None when none runs."""
    if report is None:
        yield Finding("note", "daemon", "no daemon is running", "autospec serve starts one")
        return
    if report["version"] != __version__:
        yield Finding(
            "warning",
            "daemon",
            f"the running daemon is autospec {report['version']}, this is {__version__}",
            "start it anew",
        )
        return
    running, build = report["daemon"], report["engine"]
    yield Finding("ok", "daemon", f"pid {running['pid']} serves {running['config']}")
    if engine is not None and engine.identity != build["identity"]:
        yield Finding(
            "warning",
            "daemon",
            f"it runs {build['path']} ({build['identity'][:12]}), not the engine found now",
            "start it anew to use this engine",
        )
    for model in report["models"]:
        subject = f"model {model['name']}"
        if model["state"] == "failed":
            remedy = "mend it, then start the daemon anew"
            yield Finding("error", subject, f"failed: {model['reason']}", remedy)
        if model["fault"]:
            yield Finding("warning", subject, model["fault"])


def about_folder(folder: Folder) -> Finding:
    what = f"{folder.name} folder {folder.path}"
    if folder.mode is None:
        if folder.writable:
            return Finding("ok", "folders", f"{what} will be made when it is needed")
        return Finding(
            "error", "folders", f"{what} cannot be made", f"make {folder.parent} writable"
        )
    if not folder.writable:
        return Finding(
            "error", "folders", f"{what} is not writable", "give it to the user who runs autospec"
        )
    if not folder.ours:
        return Finding(
            "warning",
            "folders",
            f"{what} belongs to another user, who can change what is measured",
            "give it to the user who runs autospec",
        )
    if folder.mode & _OTHERS:
        level: Level = "error" if folder.mode & _OTHERS_WRITE else "warning"
        may = "write into" if folder.mode & _OTHERS_WRITE else "look into"
        return Finding(
            level,
            "folders",
            f"others may {may} the {what} (mode {folder.mode:04o})",
            f"chmod 700 {folder.path}",
        )
    return Finding("ok", "folders", f"{what} is private")


def about_key_file(path: Path, mode: int) -> Finding:
    if mode & _WORLD_READS:
        return Finding(
            "warning",
            "keys",
            f"every user of this machine can read {path} (mode {mode:04o})",
            f"chmod 600 {path}",
        )
    return Finding("ok", "keys", f"{path} is not open to all")


def about_environment(stray: Sequence[str]) -> Finding:
    if not stray:
        return Finding("ok", "environment", "no variable that llama-server would obey is set")
    return Finding(
        "warning",
        "environment",
        f"{', '.join(stray)}: set, and kept from llama-server",
        "unset them, and write what they say into the configuration",
    )


def about_passed_on(environment: Mapping[str, str], *, gpu: bool) -> Iterator[Finding]:
    """Variables that change which libraries and GPUs the engine has, and that it is given."""
    for name in _LIBRARIES:
        if name in environment:
            yield Finding(
                "note",
                "environment",
                f"{name} is set, and llama-server gets it",
                f"unset {name}, unless it is meant for llama-server",
            )
    for name in _GPUS:
        hidden = environment.get(name, "0") in ("", "-1", "none", "void", "NoDevFiles")
        if gpu and hidden:
            yield Finding(
                "warning",
                "environment",
                f"{name}={environment[name]} hides every GPU from the engine",
                f"unset {name}",
            )


def about_compiler(path: str | None, *, needed: bool) -> Finding:
    """`needed`: the configuration asks for the live policy, whose library is compiled here."""
    if path is not None:
        return Finding("ok" if needed else "note", "compiler", f"C compiler: {path}")
    if needed:
        return Finding(
            "warning",
            "compiler",
            "there is no C compiler, which the live policy needs",
            "install gcc or clang (apt-get install gcc libc6-dev)",
        )
    said = "no C compiler; only the live policy and building an engine need one"
    return Finding("note", "compiler", said)
