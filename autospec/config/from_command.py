"""Writes a configuration from the `llama-server` command line that a user has today."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tomli_w

from autospec.config.command_line import read_command
from autospec.config.load import parse
from autospec.config.schema import Config
from autospec.config.values import Address
from autospec.engine.flags import Option, refuse_extra
from autospec.errors import ConfigError

_log = logging.getLogger(__name__)

KEY_FILE = "api-keys"
"""Where keys go that stood on the command line; beside the configuration."""

_HEADER = "# Written by autospec import; autospec schema --example explains every option.\n"
_FILES = frozenset(
    {
        *("--mmproj", "-mm", "--lora", "--control-vector", "--chat-template-file"),
        *("--grammar-file", "--json-schema-file", "-jf", "--slot-save-path", "--log-file"),
        *("--lookup-cache-static", "-lcs", "--lookup-cache-dynamic", "-lcd", "--path"),
        *("--media-path", "--ui-config-file"),
    }
)
"""Flags whose value is a file of the folder where the command was typed."""

_SET_ANYWAY = frozenset({"--metrics", "--slots"})
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY", re.IGNORECASE)
_PART = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # lone surrogates are bytes that are no UTF-8


class Imported(NamedTuple):
    """`document` is the text of an autospec.toml; `notes` say what it could not take over."""

    document: str
    notes: tuple[str, ...]


def config_from_command(argv: Sequence[str], cwd: Path) -> Imported:
    """The configuration that runs what `argv` runs, with speculation left to measurement.

    `argv` may start with variables and the program, or be arguments only; its relative paths
    start at `cwd`. Drafting numbers become comments. A key on the command line is not written:
    the document names a file for it, and does not load before that file is there.

    Raises ConfigError for a command line that names no model or that llama-server itself
    would refuse.
    """
    if any(_NOT_TEXT.search(word) for word in argv):
        raise ConfigError("the command line holds characters that are not text")
    command = read_command(argv)
    given = _Given(command.options, cwd, list(command.notes))
    server = _server(given)
    engine = _engine(command.program, command.environment, given)
    model = _model(given)
    document = "\n".join([_HEADER, *server, *engine, *model])
    return Imported(document, tuple(given.notes))


def config_of_arguments(argv: Sequence[str], cwd: Path | None = None) -> Config:
    """The configuration for `autospec serve -- argv`; what it cannot take over is logged.

    Relative paths start at `cwd`, by default the current folder.
    """
    folder = cwd or Path.cwd()
    document, notes = config_from_command(argv, folder)
    for note in notes:
        _log.warning("%s", note)
    return parse(document, path=Path("command line"), base=folder)


class _Given:
    """The options of the command line, taken one after the other until the rest is left."""

    def __init__(self, options: Sequence[Option], cwd: Path, notes: list[str]) -> None:
        self._options = list(options)
        self._cwd = cwd
        self.notes = notes

    def take(self, name: str) -> str | None:
        """The value of a flag by its first name; the last one given counts, as in the engine."""
        found = [option for option in self._options if option.name == name]
        if not found:
            return None
        self._options = [option for option in self._options if option.name != name]
        flag, values = found[-1].flag, found[-1].values
        if not values or not values[0]:
            raise ConfigError(f"{flag} needs a value", hint="give it one, or leave it out")
        if len(values) > 1:
            raise ConfigError(
                f"{len(values)} values follow {flag}, which takes one",
                hint="put a value with spaces into quotes",
            )
        return values[0]

    def take_path(self, name: str) -> str | None:
        value = self.take(name)
        return None if value is None else self.path(value)

    def take_whole(self, name: str) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,9}", value):
            raise ConfigError(f"{value!r} after {name} is no whole number", hint="correct it")
        return int(value)

    def take_number(self, name: str) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"{value!r} after {name} is no number", hint="correct it")
        return number

    def path(self, value: str) -> str:
        try:
            return str(self._cwd / Path(value).expanduser())
        except RuntimeError:
            return str(self._cwd / value)

    def peek(self, *names: str) -> str | None:
        """The value that `take` would give, of whichever name comes last."""
        values = [
            option.values[0] for option in self._options if option.name in names and option.values
        ]
        return values[-1] if values else None

    def rest(self) -> list[list[str]]:
        """What is left and may be passed on, one flag with its values each."""
        kept = []
        for option in self._options:
            words = [option.flag, *option.values] if option.flag else [*option.values]
            if not option.flag:
                raise ConfigError(
                    f"{words[0]!r} belongs to no flag", hint="put a value with spaces into quotes"
                )
            if option.name in _FILES and option.values:
                words[1] = self.path(words[1])
            if option.name in _SET_ANYWAY:
                continue
            if refused := refuse_extra(words):
                self.notes.append(f"left out {option.flag}: {refused[0].reason}")
            else:
                kept.append(words)
        return kept


def _server(given: _Given) -> list[str]:
    host = given.take("--host") or "127.0.0.1"
    port = given.take_whole("--port")
    key_file = given.take_path("--api-key-file")
    if given.take("--api-key"):
        key_file = key_file or KEY_FILE
        given.notes.append(
            f"the key was not copied: write it into the file {key_file}, which only you can read"
        )
    address = _address(host, 8080 if port is None else port, given)
    lines = ["[server]"]
    if not (address.private or key_file):
        given.notes.append(
            f"{address} can be reached by other machines and needs a key file; this "
            "configuration listens on 127.0.0.1 until one is named"
        )
        lines += [
            "# To be reached by other machines again, name a file with keys:",
            _off("listen", str(address)),
            _off("api_key_file", KEY_FILE),
        ]
        address = address.on_host("127.0.0.1")
    lines.append(_entry("listen", str(address)))
    return [*lines, *([_entry("api_key_file", key_file)] if key_file else []), ""]


def _address(host: str, port: int, given: _Given) -> Address:
    first, *others = host.split(",")
    if others:
        given.notes.append(f"of the addresses {host} only {first} is used")
    if first.endswith(".sock"):
        return Address(socket=Path(given.path(first)))
    return Address(first.strip("[]"), port)


def _engine(program: str | None, environment: Mapping[str, str], given: _Given) -> list[str]:
    lines = []
    if program is not None and "/" in program:
        lines.append(_entry("path", given.path(program)))
    secret = [name for name in environment if _SECRET.search(name)]
    given.notes += [f"{name} was not copied: set it where autospec starts" for name in secret]
    open_to_see = {name: value for name, value in environment.items() if name not in secret}
    if open_to_see:
        pairs = [_entry(name, value) for name, value in open_to_see.items()]
        lines.append(f"environment = {{ {', '.join(pairs)} }}")
    return ["[engine]", *lines, ""] if lines else []


def _model(given: _Given) -> list[str]:
    name = _name(given)
    path, hf = given.take_path("--model"), given.take("--hf-repo")
    if (path is None) == (hf is None):
        raise ConfigError(
            "the command line names no model" if path is None else "-m and -hf name two models",
            hint="give llama-server one of -m FILE and -hf USER/MODEL",
        )
    entries = {
        "path": path,
        "hf": hf,
        "draft": given.take_path("--spec-draft-model"),
        "draft_hf": given.take("--spec-draft-hf"),
        "context": given.take_whole("--ctx-size"),
        "slots": _slots(given),
    }
    lines = [_entry(key, value) for key, value in entries.items() if value is not None]
    if workers := given.take("--rpc"):
        lines.append(f"rpc = [{', '.join(map(_toml, workers.split(',')))}]")
    return [f"[models.{_key(name)}]", *lines, *_speculation(given), *_extra(given), ""]


def _slots(given: _Given) -> int | None:
    slots = given.take_whole("--parallel")
    if slots is None or slots < 1:
        given.notes.append(
            "llama-server chooses a number of slots when none is given; autospec serves one "
            "unless `slots` says more"
        )
        return None
    return slots


def _speculation(given: _Given) -> list[str]:
    lines = []
    types = given.take("--spec-type")
    if types == "none":
        lines += [
            "# You ran without speculation; take the # away to keep it so.",
            _off("type", "off"),
        ]
    elif types is not None:
        lines.append(_entry("type", types))
    numbers = {
        "n_max": given.take_whole("--spec-draft-n-max"),
        "n_min": given.take_whole("--spec-draft-n-min"),
        "p_min": given.take_number("--spec-draft-p-min"),
    }
    ran = {key: value for key, value in numbers.items() if value is not None}
    if ran:
        said = ", ".join(f"{key} {value}" for key, value in ran.items())
        given.notes.append(f"you ran {said}; autospec chooses by measurement")
        lines.append(f"# You ran {said}; autospec chooses by measurement. Take a # away to pin.")
        lines += [_off(key, value) for key, value in ran.items()]
    return lines


def _extra(given: _Given) -> list[str]:
    rows = given.rest()
    if not rows:
        return []
    return ["extra = [", *(f"    {', '.join(map(_toml, row))}," for row in rows), "]"]


def _name(given: _Given) -> str:
    """A name for the model: its alias, or that of its file or repository."""
    named = given.peek("--alias", "-a") or given.peek("--model", "--hf-repo") or ""
    last = re.split(r"[/\\:]", named.split(",")[0].rstrip("/"))
    word = last[-2] if ":" in named and len(last) > 1 else last[-1]
    stem = _PART.sub("", word.removesuffix(".gguf"))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-")[:64] or "model"


def _key(name: str) -> str:
    return f'"{name}"' if "." in name else name


def _off(key: str, value: str | float) -> str:
    return f"#{_entry(key, value)}"


def _entry(key: str, value: str | float) -> str:
    return f"{key} = {_toml(value)}"


def _toml(value: str | float) -> str:
    return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
