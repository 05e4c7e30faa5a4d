"""What `autospec fit` shows: the laws with their flags, the rules side by side, the curve."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from autospec.tuning.curvefit import CurveFit, LawFit
from autospec.tuning.oldrules import Outcome
from autospec.ui.plot import Lines, Marks, cost_curve, write_cost_curve


def show_fit(fit: CurveFit, console: Console) -> None:
    """Print everything about one curve."""
    console.print(report(fit, console.width))


def report(fit: CurveFit, width: int = 80) -> RenderableType:
    plot = cost_curve(
        _batches(fit),
        fit.relative_cost,
        lines=_lines(fit),
        marks=_marks(fit),
        title=f"{fit.name}: cost of a token, in units of plain decoding",
        width=min(width, 100),
    )
    notes = [Text(f"note: {note}", style="yellow") for note in fit.notes]
    return Group(Text(plot), _laws(fit), _rules(fit), *notes, Text())


def write_picture(fit: CurveFit, path: Path) -> None:
    """The curve with its laws as a PNG."""
    write_cost_curve(
        path,
        _batches(fit),
        fit.relative_cost,
        lines=_lines(fit),
        marks=_marks(fit),
        title=fit.name,
        y_label="cost of a token, plain decoding = 1",
    )


def picture_paths(path: Path, count: int) -> list[Path]:
    """`path` for one curve; for more, numbered before the suffix."""
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(1, count + 1)]


def _batches(fit: CurveFit) -> list[int]:
    return list(range(1, len(fit.relative_cost) + 1))


def _lines(fit: CurveFit) -> Lines:
    lines = {}
    for name, found in (("power law", fit.power), ("with offset", fit.with_offset)):
        if found is not None:
            batches = _batches(fit)[found.law.skip :]
            lines[name] = (batches, [found.law.relative_cost(batch) for batch in batches])
    return lines


def _marks(fit: CurveFit) -> Marks:
    """The batch that the optimal rule makes at an acceptance of 0.8, if it drafts at all."""
    best = next((v.optimal for v in fit.verdicts if v.acceptance == 0.8), None)
    if best is None or best.drafted < 1:
        return ()
    return [(round(best.drafted) + 1, "best at 0.8")]


def _laws(fit: CurveFit) -> Table:
    table = Table(title="power laws of pull request 14132", title_justify="left")
    table.add_column("law", no_wrap=True)
    for name in ("rmse", "draft-min", "draft-max", "draft-p-min"):
        table.add_column(name, justify="right")
    for found in (fit.power, fit.with_offset):
        if found is not None:
            packed = Text(found.encoding.p_min)
            if not found.encoding.decodable:
                packed.append(" cannot be decoded", style="yellow")
            table.add_row(
                _formula(found),
                f"{found.law.rmse:.5f}",
                str(found.encoding.n_min),
                str(found.encoding.n_max),
                packed,
            )
    return table


def _formula(found: LawFit) -> str:
    law = found.law
    x = f"(b−{law.skip})^−{law.power:.4f}"
    if law.offset == 0:
        return f"{law.base:.3f}·{x}"
    sign = "+" if law.offset > 0 else "−"
    return f"{law.base - law.offset:.3f}·{x} {sign} {abs(law.offset):.4f}"


def _rules(fit: CurveFit) -> Table:
    draft = "free" if fit.draft_cost == 0 else f"{fit.draft_cost:.0%} of a plain one"
    table = Table(
        title=f"tokens drafted and speed over plain; draft steps {draft}",
        title_justify="left",
    )
    for name in ("acceptance", "plain", "rule of 14132", "rule of 17034", "optimal", "old loses"):
        table.add_column(name, justify="right")
    for verdict in fit.verdicts:
        table.add_row(
            f"{verdict.acceptance:.2f}",
            "1.00x",
            _outcome(verdict.law),
            _outcome(verdict.average),
            Text(_outcome(verdict.optimal), style="bold"),
            f"{verdict.loss:.0%}",
        )
    return table


def _outcome(outcome: Outcome | None) -> str:
    return "–" if outcome is None else f"{outcome.drafted:.0f} → {outcome.speedup:.2f}x"
