"""From a file to a `Config`, or to every fault that is in it."""

from __future__ import annotations

import copy
import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from autospec import paths
from autospec.config.faults import ConfigFaults, Fault, kind, shown
from autospec.config.json_schema import annotated, fragment, words
from autospec.config.names import ENVIRONMENT, MOST_BYTES
from autospec.config.positions import Location, Positions
from autospec.config.rules import Finding, findings
from autospec.config.schema import Config
from autospec.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MOST_PARTS = 32
_DEEP_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){{{_MOST_PARTS}}}""")

_IN_KEY = "[key]"
"""How pydantic ends the location of a fault that is in a table's key, not in its value."""

_OTHER_NAMES = {
    "model": "path",
    "file": "path",
    "hf_repo": "hf",
    "model_draft": "draft",
    "ctx": "context",
    "ctx_size": "context",
    "n_ctx": "context",
    "parallel": "slots",
    "n_parallel": "slots",
    "args": "extra",
    "arguments": "extra",
    "spec_type": "type",
    "draft_max": "n_max",
    "draft_min": "n_min",
    "draft_p_min": "p_min",
    "host": "listen",
    "port": "listen",
    "address": "listen",
    "api_key": "api_key_file",
    "env": "environment",
    "timeout": "start_timeout",
}
"""What other tools call our options."""


def find_config(explicit: Path | None) -> Path:
    """The configuration file: `explicit`, or AUTOSPEC_CONFIG, or the user's, or the system's.

    A file that was named must exist; raises ConfigError with every place looked at.
    """
    named = os.environ.get(ENVIRONMENT)
    if explicit is not None:
        places = {explicit: "--config"}
    elif named:
        places = {Path(named).expanduser(): ENVIRONMENT}
    else:
        places = dict.fromkeys(paths.config_files(), "")
    for file in places:
        if _present(file):
            return file
    looked = ", ".join(f"{file} ({name})" if name else str(file) for file, name in places.items())
    raise ConfigError(
        f"no configuration file; looked at {looked}",
        hint=f"autospec import 'llama-server …' -o {paths.config_files()[0]} writes one from the "
        "command line that you use today; autospec serve -- … runs it without a file",
    )


def _present(file: Path) -> bool:
    """Whether there is such a file; one that may not be looked at counts, and `load` says so."""
    try:
        file.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def load(path: Path) -> Config:
    """The configuration in the file `path`; raises ConfigFaults with all that is wrong."""
    return parse(read_text(path), path=path)


def read_text(path: Path) -> str:
    """The text of a configuration file, which is small and UTF-8."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            hint="check the path and who may read the file",
        ) from None
    if len(raw) > MOST_BYTES:
        raise ConfigFaults((Fault(path, 1, "", "the file is larger than a megabyte"),))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigFaults((Fault(path, line, "", "is not UTF-8 text"),)) from None


def parse(text: str, *, path: Path, base: Path | None = None) -> Config:
    """The configuration written in `text`, whose faults are reported as being in `path`.

    Relative paths start at `base`, by default the folder of `path`.
    """
    data = read_toml(text, path)
    config, found = _shaped(data, (base or path.parent).absolute())
    faulty = [finding.location for finding in found]
    faulty += [_meant(finding) for finding in found if finding.nearest]
    found += [
        finding
        for finding in findings(config)
        if not any(
            location[: len(bad)] == bad
            for bad in faulty
            for location in (finding.location, *finding.relies_on)
        )
    ]
    if found:
        positions = Positions(text)
        faults = [
            Fault(
                path,
                positions.line(finding.location),
                _dotted(finding.location),
                finding.message,
                finding.expected,
                finding.nearest,
            )
            for finding in found
        ]
        raise ConfigFaults(tuple(sorted(faults, key=lambda fault: (fault.line, fault.key))))
    return config


def read_toml(text: str, path: Path) -> dict[str, Any]:
    """The tables in `text`; a fault of its syntax is reported at its line."""
    if deep := _DEEP_KEY.search(text):
        # tomllib takes the square of their number in time.
        line = text.count("\n", 0, deep.start()) + 1
        raise ConfigFaults((Fault(path, line, "", f"a key of more than {_MOST_PARTS} parts"),))
    try:
        return tomllib.loads(text)
    except RecursionError:
        message, line = "is nested too deeply", 1
    except ValueError as error:
        message, place = _split_syntax_error(str(error))
        line = min(place, text.count("\n") + 1) if place else text.rstrip().count("\n") + 1
    raise ConfigFaults((Fault(path, line, "", message),))


def _dotted(location: Location) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    return "".join(parts).removeprefix(".")


def _split_syntax_error(message: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    if found is None:
        return f"is not TOML: {message}", None
    said = found[1][:1].lower() + found[1][1:]
    if found[2] is None:
        return f"is not TOML: {said} at the end of the file", None
    return f"is not TOML: {said} in column {found[3]}", int(found[2])


def _shaped(data: dict[str, Any], base: Path) -> tuple[Config, list[Finding]]:
    """The configuration with what is faulty left out, and the faults of single options."""
    context = {"base": base}
    try:
        return Config.model_validate(data, context=context), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    sound = copy.deepcopy(data)
    for detail in details:
        _drop(sound, detail["loc"])
    return Config.model_validate(sound, context=context), [
        _finding(detail)
        for detail in details
        if not any(_surrounds(detail["loc"], other["loc"]) for other in details)
    ]


def _surrounds(outer: Location, inner: Location) -> bool:
    """A list whose elements are faulty also counts as too short."""
    return len(outer) < len(inner) and inner[: len(outer)] == outer


def _drop(data: dict[str, Any], location: Location) -> None:
    """Take out the option at `location`.

    Of a list one element is at fault: an argument is blanked, so that the others are still
    looked at; a list of numbers goes as a whole.
    """
    *outer, last = (key for key in location if key != _IN_KEY)
    table: Any = data
    for key in outer:
        inner = table.get(key)
        if isinstance(inner, list) and key == "extra":
            inner[int(last)] = ""
            return
        if not isinstance(inner, dict):
            last = key
            break
        table = inner
    table.pop(last, None)


def _finding(detail: ErrorDetails) -> Finding:
    location: Location = detail["loc"]
    value, context = detail["input"], detail.get("ctx", {})
    if location[-1] == _IN_KEY:
        return Finding(
            location[:-1],
            "is not a name",
            "letters, digits and . _ -" if location[0] == "models" else "letters, digits and _",
        )
    match detail["type"]:
        case "extra_forbidden":
            return Finding(location, "unknown key", nearest=_nearest(location))
        case "value_error":
            message = str(context["error"])
        case "greater_than_equal" | "less_than_equal" | "finite_number":
            message = f"{shown(value)} is out of range"
        case "literal_error" | "string_pattern_mismatch":
            message = f"{shown(value)} is not valid"
        case "too_short" | "too_long":
            message = f"holds {context['actual_length']} values"
        case _:
            message = f"{shown(value)} is {kind(value)}"
    return Finding(location, message, words(fragment(location)))


def _nearest(location: Location) -> str | None:
    """The valid key that was probably meant: of the same table, else of another one."""
    *table, key = location
    wanted = str(key).replace("-", "_")
    valid: dict[str, Any] = fragment(tuple(table)).get("properties", {})
    if (ours := _OTHER_NAMES.get(wanted)) and ours in valid:
        return ours
    if close := difflib.get_close_matches(wanted, list(valid), n=1):
        return close[0]
    for name, section in annotated()["properties"].items():
        shape = fragment(("models", "NAME")) if name == "models" else section
        if wanted in shape.get("properties", {}):
            return f"models.NAME.{wanted}" if name == "models" else f"{name}.{wanted}"
    return None


def _meant(finding: Finding) -> Location:
    return (*finding.location[:-1], str(finding.nearest))
