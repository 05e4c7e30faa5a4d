"""Types of single values in autospec.toml: how each is read, written back and described."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from autospec.config import values
from autospec.config.values import Address

EXPECTED = "expected"
"""The key of a schema fragment under which a value is described in words, where the standard
keys cannot do it. It is not published."""

MOST_DRAFTED = 64
"""Longest draft that can be asked for; real optima lie under 20."""

MOST_SLOTS = 256
"""The engine's own limit of sequences."""


def _base(info: ValidationInfo) -> Path:
    """The folder from which relative paths start: that of the file being read."""
    context = info.context or {}
    return Path(context.get("base", "."))


def _path(value: object, info: ValidationInfo) -> Path:
    return values.path(value, _base(info))


def _key_file(value: object, info: ValidationInfo) -> Path:
    return values.key_file(value, _base(info))


def _address(value: object, info: ValidationInfo) -> Address:
    return values.address(value, _base(info))


def _auto_duration(value: object) -> float | None:
    return None if value == "auto" else values.duration(value)


def _written_auto_duration(seconds: float | None) -> str:
    return "auto" if seconds is None else values.written_duration(seconds)


def _list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _fragment(expected: str, **schema: Any) -> WithJsonSchema:  # noqa: ANN401
    return WithJsonSchema({EXPECTED: expected, **schema})


_TIME = [
    {"type": "number", "exclusiveMinimum": 0, "maximum": values.DAY},
    {"type": "string", "pattern": values.DURATION_PATTERN},
]

FilePath = Annotated[
    Path,
    PlainValidator(_path),
    PlainSerializer(str),
    _fragment("a path, relative to this file or to ~", type="string", pattern=r"\S"),
]
KeyFile = Annotated[
    Path,
    PlainValidator(_key_file),
    PlainSerializer(str),
    _fragment('a path, or "credential:NAME"', type="string", pattern=r"\S"),
]
ListenAddress = Annotated[
    Address,
    PlainValidator(_address),
    PlainSerializer(str),
    _fragment(
        '"HOST:PORT", "[IPV6]:PORT" or "unix:PATH.sock", ports from 1 to 65535',
        type="string",
        pattern=values.ADDRESS_PATTERN,
    ),
]
Duration = Annotated[
    float,
    PlainValidator(values.duration),
    PlainSerializer(values.written_duration),
    _fragment('seconds or text such as "90s", "2m", "1h30m", at most a day', anyOf=_TIME),
]
AutoDuration = Annotated[
    float | None,
    PlainValidator(_auto_duration),
    PlainSerializer(_written_auto_duration),
    _fragment(
        '"auto", seconds or text such as "90s", "2m", at most a day',
        anyOf=[{"const": "auto"}, *_TIME],
    ),
]
_ARGUMENT = {EXPECTED: "text or a number", "type": ["string", "number"]}
Argument = Annotated[str, PlainValidator(values.argument), WithJsonSchema(_ARGUMENT)]
Arguments = Annotated[
    tuple[Argument, ...],
    BeforeValidator(lambda value: _list(values.split(value))),
    _fragment(
        "a list of arguments, or one text that is split as a shell would",
        anyOf=[{"type": "string"}, {"type": "array", "items": _ARGUMENT}],
    ),
]
Worker = Annotated[
    str,
    PlainValidator(values.worker),
    _fragment('"HOST:PORT"', type="string", pattern=values.WORKER_PATTERN),
]
Workers = Annotated[tuple[Worker, ...], Field(max_length=64), BeforeValidator(_list)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Variable = Annotated[
    str,
    PlainValidator(values.variable),
    _fragment("text or a whole number", type=["string", "integer"]),
]
SpeculationTypes = Annotated[
    Literal["auto", "off"] | tuple[str, ...],
    PlainValidator(values.speculation_types),
    # Left to itself, pydantic makes a list of the names and warns that it is no tuple.
    PlainSerializer(lambda types: types),
    _fragment(
        '"auto", "off", or names as --spec-type takes them',
        anyOf=[
            {"type": "string", "pattern": values.TYPES_PATTERN},
            {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string", "pattern": values.TYPES_PATTERN},
            },
        ],
    ),
]
Repository = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?$"),
    Field(json_schema_extra={EXPECTED: '"USER/MODEL" or "USER/MODEL:QUANT"'}),
]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Share = Annotated[float, Field(ge=0, le=1)]

Names = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^\S+$")], ...], BeforeValidator(_list)
]
Thresholds = Annotated[
    tuple[Share, ...], Field(min_length=1, max_length=MOST_DRAFTED), BeforeValidator(_list)
]
Depths = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), BeforeValidator(_list)
]
AutoDepths = Annotated[
    Depths | None,
    BeforeValidator(lambda value: None if value == "auto" else value),
    PlainSerializer(lambda depths: "auto" if depths is None else list(depths)),
    _fragment(
        '"auto" or a list of context depths in tokens',
        anyOf=[
            {"const": "auto"},
            {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        ],
    ),
]
