"""The JSON schema of autospec.toml, and what it says in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from autospec.config.positions import Location
from autospec.config.schema import Config, ModelConfig
from autospec.config.types import EXPECTED

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def published() -> Schema:
    """The schema that editors read; defaults stand as they are written in TOML."""
    return {"$schema": DIALECT, "title": "autospec.toml", **_tidied(annotated(), {EXPECTED})}


@cache
def annotated() -> Schema:
    """The schema with its references resolved, and `EXPECTED` where a value needs words."""
    raw = Config.model_json_schema()
    sections = {}
    for name, entry in raw["properties"].items():
        if name == "models":
            (pattern,) = entry["patternProperties"]
            model = _section(raw["$defs"]["ModelConfig"], ModelConfig().model_dump(mode="json"))
            sections[name] = {
                "type": "object",
                "description": "The models, by names of your choice.",
                "patternProperties": {pattern: model},
                "additionalProperties": False,
            }
        else:
            definition = raw["$defs"][entry["$ref"].rsplit("/", 1)[1]]
            sections[name] = _section(definition, entry["default"])
    return {"type": "object", "additionalProperties": False, "properties": sections}


def fragment(location: Location) -> Schema:
    """The schema of the value at `location`; empty where nothing is declared."""
    found = annotated()
    for key in location:
        if isinstance(key, int):
            shapes = [found, *found.get("anyOf", [])]
            found = next((shape["items"] for shape in shapes if "items" in shape), {})
        elif key in found.get("properties", {}):
            found = found["properties"][key]
        else:
            found = next(iter(found.get("patternProperties", {}).values()), {})
    return found


def words(schema: Mapping[str, Any]) -> str:
    """What a value of `schema` is, for a reader: `a whole number from 1 to 64`."""
    if EXPECTED in schema:
        return str(schema[EXPECTED])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "integer":
            return "a whole number" + _range(schema)
        case "number":
            return "a number" + _range(schema)
        case "array":
            return "a list, each " + words(schema["items"])
        case "object":
            return "a table"
        case _:
            return "text"


def _range(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def _section(definition: Schema, defaults: Mapping[str, Any]) -> Schema:
    properties = {}
    for key, declared in definition["properties"].items():
        entry = _tidied(declared, {"title", "default"})
        entry["description"] = entry["description"].replace("\n", " ")
        if defaults[key] is not None:
            entry["default"] = defaults[key]
        if "patternProperties" in entry:
            entry["additionalProperties"] = False
        properties[key] = entry
    return {**_tidied(definition, {"title"}), "properties": properties}


def _tidied(node: Any, unwanted: set[str]) -> Any:  # noqa: ANN401
    """A copy without the `unwanted` keywords and without null, which TOML cannot write."""
    if isinstance(node, list):
        return [_tidied(item, unwanted) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _tidied(value, unwanted) for key, value in node.items() if key not in unwanted}
    if {"type": "null"} in kept.get("anyOf", []):
        (only,) = (choice for choice in kept.pop("anyOf") if choice != {"type": "null"})
        kept = {**only, **kept}
    return kept
