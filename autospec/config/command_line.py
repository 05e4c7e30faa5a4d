"""A `llama-server` command line as people type it, taken apart."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from autospec.engine.flags import Option, canonical, is_flag, options
from autospec.errors import ConfigError

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"llama-server[\w-]*(\.exe)?")
_MODEL = frozenset({"--model", "--hf-repo"})
_SHELL = re.compile(r"[0-9]*(>|<).*|&>.*|&&?|\|\|?|;")
_ELSEWHERE = frozenset({"docker", "podman", "ssh", "kubectl", "systemd-run"})
_STARTERS = frozenset({"env", "exec", "nohup", "sudo", "time", "setsid", "command"})

_PREFIX = "LLAMA_ARG_"
_ODD_VARIABLES = {
    "LLAMA_API_KEY": "--api-key",
    "HF_TOKEN": "--hf-token",
    "LLAMA_ARG_BATCH": "--batch-size",
    "LLAMA_ARG_UBATCH": "--ubatch-size",
    "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT": "--checkpoint-min-step",
    "LLAMA_ARG_ENDPOINT_METRICS": "--metrics",
    "LLAMA_ARG_ENDPOINT_PROPS": "--props",
    "LLAMA_ARG_ENDPOINT_SLOTS": "--slots",
    "LLAMA_ARG_HFD_REPO": "--hf-repo-draft",
    "LLAMA_ARG_N_GPU_LAYERS_DRAFT": "--n-gpu-layers-draft",
    "LLAMA_ARG_N_PARALLEL": "--parallel",
    "LLAMA_ARG_ROPE_SCALING_TYPE": "--rope-scaling",
    "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K": "--spec-draft-type-k",
    "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V": "--spec-draft-type-v",
    "LLAMA_ARG_SPEC_DRAFT_HF_REPO": "--spec-draft-hf",
    "LLAMA_ARG_STATIC_PATH": "--path",
    "LLAMA_ARG_THINK": "--reasoning-format",
    "LLAMA_ARG_THINK_BUDGET": "--reasoning-budget",
    "LLAMA_ARG_THINK_BUDGET_MESSAGE": "--reasoning-budget-message",
}
"""Variables that are not called like their flag; all others are."""

_SWITCHES = frozenset(
    {
        *("--swa-full", "--perf", "--kv-offload", "--repack", "--no-host", "--cpu-moe"),
        *("--no-mmap", "--mlock", "--mmap", "--offline", "--log-prefix", "--log-timestamps"),
        *("--backend-sampling", "--spec-draft-cpu-moe", "--kv-unified", "--cache-idle-slots"),
        *("--context-shift", "--cont-batching", "--mmproj-auto", "--mmproj-offload"),
        *("--cors-credentials", "--ui", "--webui", "--embeddings", "--reranking"),
        *("--cache-prompt", "--metrics", "--props", "--slots", "--jinja", "--agent"),
        *("--reasoning-preserve", "--skip-chat-parsing", "--prefill-assistant", "--reuse-port"),
        *("--log-jsonl", "--ui-mcp-proxy", "--models-autoload"),
    }
)
"""Flags without a value, of those that have a variable."""

_YES = frozenset({"1", "on", "true", "enabled"})


@dataclass(frozen=True)
class Command:
    """`program` is None where only arguments were given; `environment` holds the variables
    set for this one program, without those that stand for arguments.

    `options` are in the order in which the engine reads them, so that the last one counts;
    their `index` is of no use.
    """

    program: str | None
    environment: Mapping[str, str]
    options: tuple[Option, ...]
    notes: tuple[str, ...] = ()


def split_command(text: str) -> tuple[list[str], list[str]]:
    """The words of a shell command, and notes on what of it is not llama-server's.

    Continued lines are joined and known `$VARIABLES` filled in, as the shell would.
    """
    try:
        words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "))
    except ValueError as error:
        raise ConfigError(
            f"the command line cannot be split into words: {str(error).lower()}",
            hint="put the whole command into one pair of single quotes",
        ) from None
    words = [os.path.expandvars(word) for word in words]
    end = next((at for at, word in enumerate(words) if _SHELL.fullmatch(word)), len(words))
    notes = []
    if end < len(words):
        notes.append(f"left out, from the shell's {words[end]} on: {shlex.join(words[end:])}")
    return words[:end], notes


def read_command(argv: Sequence[str]) -> Command:
    """Take `[VAR=value …] [wrapper …] [llama-server] arguments` apart.

    Raises ConfigError where the server does not run on this machine or runs nothing we know.
    """
    program, before, arguments = _at_program(argv)
    environment = {}
    around = []
    for word in before:
        if found := _ASSIGNMENT.fullmatch(word):
            environment[found[1]] = found[2]
        elif PurePath(word).name not in _STARTERS:
            around.append(word)
    if any(PurePath(word).name in _ELSEWHERE for word in around):
        raise ConfigError(
            f"{around[0]} runs the server somewhere else",
            hint="run autospec there, and give it llama-server's own arguments, from -m on",
        )
    notes = []
    if around:
        notes.append(f"left out: {shlex.join(around)}; start autospec itself that way")
    given = tuple(options(arguments))
    named = {option.name for option in given}
    from_variables = []
    for variable in [name for name in environment if _stands_for_argument(name)]:
        words = list(_as_arguments(variable, environment.pop(variable)))
        from_variables += [option for option in options(words) if option.name not in named]
    return Command(program, environment, (*from_variables, *given), tuple(notes))


def _at_program(argv: Sequence[str]) -> tuple[str | None, Sequence[str], Sequence[str]]:
    """The program, what stands before it, and its arguments.

    A wrapper such as numactl has flags of its own, so the server is looked for by its name
    first; under another name it is the first word that is no assignment.
    """
    first = next((at for at, word in enumerate(argv) if not _before_program(word)), len(argv))
    model = next((at for at, word in enumerate(argv) if canonical(word) in _MODEL), len(argv))
    named = (at for at in range(model) if _SERVER.fullmatch(PurePath(argv[at]).name))
    at = next(named, first)
    if at == len(argv) or is_flag(argv[at]):
        return None, argv[:at], argv[at:]
    if PurePath(argv[at]).name in _ELSEWHERE:
        return None, argv[: at + 1], ()
    return argv[at], argv[:at], argv[at + 1 :]


def _before_program(word: str) -> bool:
    return _ASSIGNMENT.fullmatch(word) is not None or PurePath(word).name in _STARTERS


def _stands_for_argument(variable: str) -> bool:
    return variable.startswith(_PREFIX) or variable in _ODD_VARIABLES


def _as_arguments(variable: str, value: str) -> Iterator[str]:
    rule = "--" + variable.removeprefix(_PREFIX).lower().replace("_", "-")
    flag = _ODD_VARIABLES.get(variable, rule)
    if canonical(flag) not in _SWITCHES:
        yield f"{flag}={value}"
    elif value.lower() in _YES:
        yield flag
    elif not flag.startswith("--no-"):
        yield flag.replace("--", "--no-", 1)
