"""What must hold between options, and between the file and the machine.

The schema has checked each option by itself. A rule is asked about a configuration whose
faulty options were replaced by their defaults; the options that it relies on are named in its
findings, so that one fault is not reported twice.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from autospec.config.faults import shown
from autospec.config.positions import Location
from autospec.config.schema import Config, ModelConfig
from autospec.config.values import Address
from autospec.engine.flags import refuse_extra

_ANY_HOST = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 (compared, not bound)
_KEY_FILE_READ = 1 << 16


@dataclass(frozen=True)
class Finding:
    """A fault at `location`; it holds only if none of `relies_on` is faulty itself."""

    location: Location
    message: str
    expected: str | None = None
    nearest: str | None = None
    relies_on: tuple[Location, ...] = ()


def findings(config: Config) -> Iterator[Finding]:
    """Everything that is wrong with a configuration of the right shape."""
    yield from _engine(config)
    yield from _keys(config)
    yield from _addresses(config)
    if not config.models:
        yield Finding(("models",), "no model is configured", "at least one [models.NAME]")
    for name, model in config.models.items():
        table: Location = ("models", name)
        yield from _sources(table, model)
        yield from _pins(table, model, config)
        for refused in refuse_extra(model.extra):
            yield Finding(
                (*table, "extra", refused.index),
                f"{shown(refused.argument.partition('=')[0])} is refused: {refused.reason}",
            )


def _engine(config: Config) -> Iterator[Finding]:
    if (path := config.engine.path) is not None and not os.access(path, os.F_OK):
        yield _missing(("engine", "path"), path)
    for name in config.engine.environment:
        if name.startswith("LLAMA_ARG_") or name == "LLAMA_API_KEY":
            yield Finding(
                ("engine", "environment", name),
                f"{name} would override what autospec passes to the engine",
                "the matching argument in `extra` of the model",
            )


def _keys(config: Config) -> Iterator[Finding]:
    key_file = config.server.api_key_file
    location: Location = ("server", "api_key_file")
    if key_file is not None:
        fault = _unusable(location, key_file)
        if fault is None and not _holds_a_key(key_file):
            fault = Finding(location, f"{key_file} holds no key", "one key a line")
        if fault is not None:
            yield fault
        return
    exposed = {("server", "listen"): config.server.listen} | {
        ("models", name, "listen"): model.listen
        for name, model in config.models.items()
        if model.listen is not None
    }
    for where, address in exposed.items():
        if not address.private:
            yield Finding(
                where,
                f"other machines can reach {address}, and no key guards it",
                "[server].api_key_file, or an address of this machine only",
                relies_on=(location, where),
            )


def _addresses(config: Config) -> Iterator[Finding]:
    listen: Location = ("server", "listen")
    if config.server.front_door:
        own = {name: model.listen for name, model in config.models.items() if model.listen}
        yield from _taken([(None, config.server.listen), *own.items()], config)
        return
    following = [name for name, model in config.models.items() if model.listen is None]
    if config.server.listen.socket and len(following) > 1:
        for name in following[1:]:
            yield Finding(
                ("models", name),
                "needs an address of its own, as no port follows a UNIX socket",
                f"models.{name}.listen",
                relies_on=(listen, ("models", name, "listen")),
            )
        return
    addresses = config.addresses()
    for name, address in addresses.items():
        if address.port > 65535:
            yield Finding(
                ("models", name), f"no port is left above {config.server.listen}", "a lower port"
            )
    yield from _taken([*addresses.items()], config)


def _taken(addresses: Sequence[tuple[str | None, Address]], config: Config) -> Iterator[Finding]:
    """Whose address (None: of all models) is that of somebody before."""
    listen: Location = ("server", "listen")
    for (first, one), (second, other) in combinations(addresses, 2):
        if second is not None and _same(one, other):
            table: Location = ("models", second)
            place: Location = (*table, "listen")
            before: Location = ("models", first, "listen") if first else listen
            yield Finding(
                place if config.models[second].listen else table,
                f"{other} is taken by {f'models.{first}' if first else 'server.listen'}",
                "an address of its own",
                relies_on=(listen, before, place),
            )


def _same(one: Address, other: Address) -> bool:
    if one.socket or other.socket:
        return one.socket == other.socket
    hosts = {"127.0.0.1" if host == "localhost" else host for host in (one.host, other.host)}
    return one.port == other.port and (len(hosts) == 1 or bool(hosts & _ANY_HOST))


def _sources(table: Location, model: ModelConfig) -> Iterator[Finding]:
    path, hf = (*table, "path"), (*table, "hf")
    if model.path is None and model.hf is None:
        yield Finding(table, "names no model", "either path or hf", relies_on=(path, hf))
    if model.path is not None and model.hf is not None:
        yield Finding(hf, "a model has either path or hf", "one of the two", relies_on=(path,))
    if model.draft is not None and model.draft_hf is not None:
        yield Finding(
            (*table, "draft_hf"), "a draft model has either draft or draft_hf", "one of the two"
        )
    for key, file in (("path", model.path), ("draft", model.draft)):
        if file is not None and (fault := _unusable((*table, key), file)):
            yield fault


def _pins(table: Location, model: ModelConfig, config: Config) -> Iterator[Finding]:
    limit = config.calibration.max_draft
    measured: Location = ("calibration", "max_draft")
    vector = model.thresholds
    if model.n_max is not None and model.n_max > limit:
        yield Finding(
            (*table, "n_max"),
            f"{model.n_max} is beyond the drafts that are measured",
            f"at most calibration.max_draft, which is {limit}",
            relies_on=(measured,),
        )
    if model.n_max is not None and (model.n_min or 0) > model.n_max:
        yield Finding(
            (*table, "n_min"), f"{model.n_min} is more than n_max", f"at most {model.n_max}"
        )
    if vector is not None:
        place: Location = (*table, "thresholds")
        if len(vector) > limit:
            yield Finding(
                place,
                f"{len(vector)} positions are beyond the drafts that are measured",
                f"at most calibration.max_draft, which is {limit}",
                relies_on=(measured,),
            )
        if model.n_max is not None and len(vector) != model.n_max:
            yield Finding(
                place, f"holds {len(vector)} values", f"one for each of n_max = {model.n_max}"
            )
        if config.engine.live_policy == "off":
            yield Finding(
                place,
                "thresholds need the live policy, which is off",
                'engine.live_policy = "auto", or n_max, n_min and p_min',
            )
        for key in ("n_min", "p_min"):
            if getattr(model, key) is not None:
                yield Finding((*table, key), "has no meaning beside thresholds", "one of the two")
    if "draft-simple" in model.type and model.draft is None and model.draft_hf is None:
        yield Finding(
            (*table, "type"),
            "draft-simple needs a draft model",
            "draft or draft_hf",
            relies_on=((*table, "draft"), (*table, "draft_hf")),
        )


def _unusable(location: Location, path: Path) -> Finding | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Finding(location, f"{path} is not a file", "a file")
    except PermissionError:
        pass
    except (OSError, ValueError):
        return _missing(location, path)
    if not os.access(path, os.R_OK):
        return Finding(location, f"{path} may not be read by this user", "a readable file")
    return None


def _missing(location: Location, path: Path) -> Finding:
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        beside = []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8)
    return Finding(location, f"{path} does not exist", nearest=near[0] if near else None)


def _holds_a_key(path: Path) -> bool:
    """As the engine reads it: a line that is neither empty nor a comment is a key."""
    try:
        with path.open("rb") as file:
            lines = file.read(_KEY_FILE_READ).splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.startswith(b"#") for line in lines)
