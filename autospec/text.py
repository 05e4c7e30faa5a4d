"""Text from outside, made fit to be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with a � for each character that a terminal could act on, line ends included."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)
