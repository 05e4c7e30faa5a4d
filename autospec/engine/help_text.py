"""Reads what `llama-server --help` prints.

An entry starts near the left margin with its names and its argument; its description follows
after two or more spaces, or on the next lines, indented far to the right:

    -c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded
                                            from model)
                                            (env: LLAMA_ARG_CTX_SIZE)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autospec.text import printable

MAX_LINE = 2_000
MAX_LINES = 10_000
MAX_ENTRY_INDENT = 12

_NAME = r"--?[A-Za-z][A-Za-z0-9._-]*"
_ENTRY = re.compile(
    rf"(?P<names>{_NAME}(?:, *{_NAME})*)(?: (?P<argument>\S+(?: \S+)*))?(?: {{2,}}(?P<text>.*))?"
)
_SECTION = re.compile(r"-{3,} (?P<dashed>[^-].{0,80}?) -{3,}|(?P<colon>[a-z][a-z/ -]{0,80}):")
_ENV = re.compile(r"\(env: ([A-Za-z_][A-Za-z0-9_]*)\)")
_DEFAULT = re.compile(r"default: ([^(),]*)")
_REMOVED = re.compile(r"the argument has been removed\.?(?P<advice>[^(]*)")


@dataclass(frozen=True)
class Flag:
    """One entry of the help text.

    `argument` is the placeholder as printed (`N`, `[on|off|auto]`, `START END`), None for a
    switch. `removed` is the engine's advice when the flag is listed but no longer works (it
    may be empty), None for a living flag. `default` is the first thing printed after
    `default:`, without quotes. `section` is the heading that it stands under.
    """

    names: tuple[str, ...]
    argument: str | None = None
    removed: str | None = None
    env: str | None = None
    default: str | None = None
    section: str = ""

    @property
    def values(self) -> int:
        """How many arguments follow the flag: placeholders part by spaces outside brackets."""
        if self.argument is None:
            return 0
        outside = re.sub(r"<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}", "x", self.argument)
        return len(outside.split())


def parse_help(text: str) -> dict[str, Flag]:
    """Every name that the help text lists, with its entry; lines that are no entry are skipped.

    The text comes from a program that may be anything: overlong lines and lines beyond
    `MAX_LINES` are dropped, and a name listed twice keeps its first entry.
    """
    flags: dict[str, Flag] = {}
    names: tuple[str, ...] = ()
    argument: str | None = None
    description: list[str] = []
    section = ""

    def close() -> None:
        if names:
            flag = _flag(names, argument, " ".join(description), section)
            for name in names:
                flags.setdefault(name, flag)

    for line in text.splitlines()[:MAX_LINES]:
        if len(line) > MAX_LINE:
            continue
        body = printable(line.strip())
        indent = len(line) - len(line.lstrip(" "))
        entry = _ENTRY.fullmatch(body) if indent < MAX_ENTRY_INDENT else None
        if entry:
            close()
            names = tuple(re.split(r", *", entry["names"]))
            argument = entry["argument"]
            description = [entry["text"] or ""]
        elif indent >= MAX_ENTRY_INDENT:
            description.append(body)
        elif body:
            close()
            names = ()
            if heading := _SECTION.fullmatch(body):
                section = heading["dashed"] or heading["colon"]
    close()
    return flags


def _flag(names: tuple[str, ...], argument: str | None, description: str, section: str) -> Flag:
    removed = _REMOVED.search(description)
    env = _ENV.search(description)
    default = _DEFAULT.search(description)
    return Flag(
        names=names,
        argument=argument,
        removed=removed["advice"].strip().rstrip(".") if removed else None,
        env=env[1] if env else None,
        default=default[1].strip().strip("'\"") if default else None,
        section=section,
    )
