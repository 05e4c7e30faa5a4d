"""What the doctor found, for a person."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autospec.daemon.doctor import Examination

_MARKS = {
    "ok": ("ok", "green"),
    "note": ("note", "cyan"),
    "warning": ("warning", "yellow"),
    "error": ("ERROR", "bold red"),
}


def print_examination(found: Examination, console: Console | None = None) -> None:
    console = console or Console()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in found.findings:
        mark, style = _MARKS[finding.level]
        said = Text(finding.sentence)
        if finding.remedy:
            said.append(f"\n→ {finding.remedy}", style="dim" if finding.level == "note" else style)
        table.add_row(Text(mark, style=style), Text(finding.subject), said)
    console.print(table)
    console.print(Text(summary(found), style="bold green" if found.ok else "bold red"))


def summary(found: Examination) -> str:
    """One line: how many errors and warnings, and whether it can serve."""
    count = Counter(finding.level for finding in found.findings)
    words = [
        f"{count[level]} {level}{'' if count[level] == 1 else 's'}"
        for level in ("error", "warning")
        if count[level]
    ]
    if not found.ok:
        return f"{', '.join(words)}: mend the errors first"
    return f"{', '.join(words) or 'nothing wrong'}"
