"""What is known about the engine's flags without an engine at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FLAG = re.compile(r"--?[A-Za-z]")
_WORDIEST = 4  # levels of -lv above this write the text of prompts into the log

_NAMES: tuple[tuple[str, ...], ...] = (
    ("--model", "-m"),
    ("--model-url", "-mu"),
    ("--docker-repo", "-dr"),
    ("--hf-repo", "-hf", "-hfr"),
    ("--hf-file", "-hff"),
    ("--hf-token", "-hft"),
    ("--ctx-size", "-c"),
    ("--parallel", "-np"),
    ("--kv-unified", "-kvu", "--no-kv-unified", "-no-kvu"),
    ("--threads", "-t"),
    ("--threads-batch", "-tb"),
    ("--gpu-layers", "-ngl", "--n-gpu-layers"),
    ("--device", "-dev"),
    ("--cache-type-k", "-ctk"),
    ("--cache-type-v", "-ctv"),
    ("--override-tensor", "-ot"),
    ("--cpu-moe", "-cmoe"),
    ("--n-cpu-moe", "-ncmoe"),
    ("--n-cpu-ffn", "-ncffn"),
    ("--predict", "-n", "--n-predict"),
    ("--spec-draft-model", "-md", "--model-draft"),
    ("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
    ("--spec-draft-n-max", "--draft", "--draft-n", "--draft-max"),
    ("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
    ("--spec-draft-p-min", "--draft-p-min"),
    ("--spec-draft-p-split", "--draft-p-split"),
    ("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    ("--spec-draft-device", "-devd", "--device-draft"),
    ("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"),
    ("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"),
    ("--spec-draft-threads", "-td", "--threads-draft"),
    ("--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"),
    ("--spec-draft-override-tensor", "-otd", "--override-tensor-draft"),
    ("--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"),
    ("--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
    ("--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"),
    ("--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"),
    ("--spec-draft-cpu-strict", "--cpu-strict-draft"),
    ("--spec-draft-prio", "--prio-draft"),
    ("--spec-draft-poll", "--poll-draft"),
    ("--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"),
    ("--spec-draft-cpu-range-batch", "-Crbd", "--cpu-range-batch-draft"),
    ("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"),
    ("--spec-draft-prio-batch", "--prio-batch-draft"),
    ("--spec-draft-poll-batch", "--poll-batch-draft"),
    ("--ctx-size-draft", "-cd"),
    ("--agent", "-ag"),
    ("--ui-mcp-proxy", "--webui-mcp-proxy"),
    ("--verbose", "-v", "--log-verbose"),
    ("--verbosity", "-lv", "--log-verbosity"),
    ("--help", "-h", "--usage"),
    ("--cache-list", "-cl"),
)
_CANONICAL = {name: names[0] for names in _NAMES for name in names}

DRAFT_PLACEMENT: Mapping[str, str] = MappingProxyType(
    {
        "--spec-draft-ngl": "--gpu-layers",
        "--spec-draft-device": "--device",
        "--spec-draft-type-k": "--cache-type-k",
        "--spec-draft-type-v": "--cache-type-v",
        "--spec-draft-threads": "--threads",
        "--spec-draft-threads-batch": "--threads-batch",
        "--spec-draft-override-tensor": "--override-tensor",
        "--spec-draft-cpu-moe": "--cpu-moe",
        "--spec-draft-n-cpu-moe": "--n-cpu-moe",
    }
)
"""Where the draft runs, and the flag that says the same of a model run by itself."""

_DRAFT_CPU = re.compile(r"--spec-draft-(?:cpu-(?:mask|range|strict)|prio|poll)(?:-batch)?")

_LISTEN = "autospec decides where its child listens; clients' address is set in [server]"
_KEYS = "keys belong in [server], where no list of processes shows them"
_WATCH = "autospec reads it and passes it itself"
_MODEL = "the model is named by `path` or `hf`"
_DRAFT = "the draft is named by `draft`"
_SPECULATION = "autospec sets speculation; pin a value with `n_max`, `n_min`, `p_min` or `type`"
_AGENT = "it lets whoever reaches the server run tools, programs or requests on this machine"
_ROUTER = "it turns the server into a router with children that autospec does not see"
_LOG = "autospec reads the log to say why a child died"
_PRIVATE = "it writes the text of prompts to disk"
_EXITS = "it prints something and exits"
_PRESET = "it chooses a model and an address of its own; name the model by `hf`"

_REASONS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("--host", "--port", "--reuse-port", "--api-prefix", "--ssl-key-file", "--ssl-cert-file"),
        _LISTEN,
    )
    | dict.fromkeys(("--api-key", "--api-key-file"), _KEYS)
    | dict.fromkeys(("--metrics", "--slots", "--no-slots"), _WATCH)
    | dict.fromkeys(("--model", "--model-url", "--docker-repo", "--hf-repo"), _MODEL)
    | dict.fromkeys(("--spec-draft-model", "--spec-draft-hf"), _DRAFT)
    | dict.fromkeys(("--agent", "--ui-mcp-proxy", "--tools", "--tools-runtime"), _AGENT)
    | dict.fromkeys(("--log-disable", "--log-jsonl"), _LOG)
    | dict.fromkeys(("--log-prompts-dir", "--verbose"), _PRIVATE)
    | dict.fromkeys(
        ("--help", "--version", "--list-devices", "--cache-list", "--completion-bash"), _EXITS
    )
    | {
        "--hf-token": "a token on a command line is seen by every user; set HF_TOKEN",
        "--props": "it lets any client change settings behind autospec's back",
        "--ctx-size": "the context is set by `context`",
        "--rpc": "workers on other machines are named by `rpc`",
        "--parallel": "the slots are set by `slots`",
        "--sleep-idle-seconds": "a server that sleeps looks dead; autospec decides what is loaded",
    }
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"--spec-synth-.*"),
        "it makes the server accept wrong tokens: for benchmarks, never to serve with",
    ),
    (re.compile(r"--mcp-servers-.*"), _AGENT),
    (re.compile(r"--models-.*|--no-models-autoload"), _ROUTER),
    (re.compile(r"--(?:model|hf-repo)-.*draft"), _DRAFT),
    (re.compile(r"--(?:no-)?spec-.*|--draft.*|-draft|-mtp"), _SPECULATION),
    (re.compile(r"--(?:embd|fim|gpt|vision)-.*-(?:default|spec)"), _PRESET),
)


@dataclass(frozen=True)
class Refusal:
    """Argument number `index` of the list, as written, must not be passed on."""

    index: int
    argument: str
    reason: str


@dataclass(frozen=True)
class Option:
    """A flag and the arguments that follow it, `index` being the flag's place in the list.

    `name` is the flag's first name where we know it, else the flag as written; an argument
    before any flag has an empty name.
    """

    index: int
    flag: str
    name: str
    values: tuple[str, ...]


def is_flag(argument: str) -> bool:
    """Whether it is a flag rather than a value: `-1` and `-0.5` are values."""
    return _FLAG.match(argument) is not None


def spelled(argument: str) -> str:
    """A flag as the engine reads it: long names may be written with underscores."""
    name = argument.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


def canonical(argument: str) -> str:
    """The first name of a flag: `-c` and `--ctx_size=4096` are `--ctx-size`."""
    name = spelled(argument)
    return _CANONICAL.get(name, name)


def options(args: Sequence[str]) -> Iterator[Option]:
    """Group a command line into flags with their values.

    Without an engine's help text nobody knows how many values a flag takes: everything up to
    the next flag is counted as its values. `--flag=value` is taken apart.
    """
    start = 0
    for index in range(1, len(args) + 1):
        if index < len(args) and not is_flag(args[index]):
            continue
        if is_flag(args[start]):
            flag, equals, value = args[start].partition("=")
            joined = (value,) if equals else ()
            values = (*joined, *args[start + 1 : index])
            yield Option(start, flag, canonical(flag), values)
        else:
            yield Option(start, "", "", tuple(args[start:index]))
        start = index


def refuse_extra(args: Sequence[str]) -> list[Refusal]:
    """The arguments that a user may not add: those autospec owns and those that open a hole."""
    refusals = []
    for option in options(args):
        reason = _reason(option)
        if reason is not None:
            refusals.append(Refusal(option.index, args[option.index], reason))
    return refusals


def _reason(option: Option) -> str | None:
    if not option.flag:
        return "it belongs to no flag"
    if option.name in DRAFT_PLACEMENT or _DRAFT_CPU.fullmatch(option.name):
        return None
    if option.name == "--verbosity":
        level = option.values[0] if option.values else ""
        quiet = re.fullmatch(r"[0-9]", level) is not None and int(level) <= _WORDIEST
        return None if quiet else f"{_PRIVATE} at levels over {_WORDIEST}"
    if option.name in _REASONS:
        return _REASONS[option.name]
    return next((why for pattern, why in _PATTERNS if pattern.fullmatch(option.name)), None)
