"""The systemd units as autospec writes them: filled in, and stamped so that an edit is noticed.

The last line of an installed file holds a digest of the lines above it. A file whose digest does
not fit was edited, or is somebody else's: it is never overwritten and never removed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from importlib import resources

UNIT = "autospec.service"
GPU_DROP_IN = "autospec.service.d/gpu.conf"

_STAMP = "# Written by `autospec service install`; an edited file is left alone. sha256 "
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class Condition(StrEnum):
    """What lies where a file of ours belongs."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    EDITED = "edited"


def template(name: str, *, user: bool = False) -> str:
    """The text of a unit as it comes with autospec."""
    folder = resources.files("autospec") / "systemd"
    return ((folder / "user" if user else folder) / name).read_text(encoding="utf-8")


def filled_in(text: str, command: Sequence[str], groups: Collection[str]) -> str:
    """A unit that starts `command`, and names only groups that exist: systemd refuses others."""
    start = "ExecStart=" + " ".join(map(_quoted, command))
    text = re.sub(r"^ExecStart=.*$", lambda _: start, text, flags=re.MULTILINE)

    def known(found: re.Match[str]) -> str:
        names = " ".join(name for name in found[1].split() if name in groups)
        return f"SupplementaryGroups={names}"

    return re.sub(r"^SupplementaryGroups=(.*)$", known, text, flags=re.MULTILINE)


def stamped(text: str) -> str:
    return f"{text.rstrip()}\n\n{_STAMP}{_digest(text)}\n"


def condition(existing: str | None, wanted: str) -> Condition:
    """What `existing` is, where the stamped text `wanted` belongs."""
    if existing is None:
        return Condition.ABSENT
    if existing == wanted:
        return Condition.CURRENT
    text, found, digest = existing.rpartition(_STAMP)
    if not found or digest.strip() != _digest(text):
        return Condition.EDITED
    return Condition.OUTDATED


def ours(existing: str) -> bool:
    """Whether a file is as autospec wrote it, now or earlier."""
    return condition(existing, "") is not Condition.EDITED


def _digest(text: str) -> str:
    return hashlib.sha256(text.rstrip().encode()).hexdigest()


def _quoted(word: str) -> str:
    """One word of a command line as systemd reads it (systemd.service(5), systemd.syntax(7))."""
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
