"""A calibration as a person reads it: the curve, what was left out, what it means."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autospec.calibration.result import Calibration
from autospec.daemon.calibrating import Calibrated
from autospec.daemon.setting import Setting
from autospec.ui.plot import cost_curve


def print_calibration(found: Calibrated) -> None:
    calibration, setting = found.calibration, found.setting
    console = Console()
    source = "known already" if found.cached else f"measured in {calibration.seconds:.0f} s"
    console.print(Text(f"{calibration.model}: {source}", style="bold"))
    draw_curve(console, calibration, setting)
    console.print(_table(calibration))
    if quality := holdout_line(calibration):
        console.print(quality)
    for sentence in (*calibration.skipped, *calibration.remarks):
        console.print(Text(f"- {sentence}", style="yellow"))
    style = "bold yellow" if calibration.unsure else "bold green"
    console.print(Text(setting.reason, style=style))


def draw_curve(console: Console, calibration: Calibration, setting: Setting) -> None:
    """The target's step time over the batch, with the batch that `setting` verifies marked."""
    dense = [step for step in calibration.target if step.depth == 0 and step.slots == 1]
    n_max = setting.speculation.n_max
    curve = cost_curve(
        [step.batch for step in dense],
        [step.ms for step in dense],
        marks=[(float(n_max + 1), f"n_max {n_max}")] if setting.speculation.on else [],
        title="ms a step of the target, depth 0",
        width=min(72, console.width),
    )
    console.print(Text.from_ansi(curve))


def holdout_line(calibration: Calibration) -> str | None:
    """How well rows at depth were predicted from the others there, as a sentence."""
    errors = sorted(row.error for row in calibration.surface.holdout())
    if not errors:
        return None
    middle = errors[len(errors) // 2]
    return (
        f"rows at depth, each predicted from the others: median error {middle:.1%}, "
        f"worst {errors[-1]:.1%} ({len(errors)} rows)"
    )


def _table(calibration: Calibration) -> Table:
    steps = {(s.depth, s.batch): s for s in calibration.target if s.slots == 1}
    drafts = {(s.depth, s.batch): s for s in calibration.draft if s.slots == 1}
    depths = sorted({depth for depth, _ in steps})
    table = Table(box=None, header_style="cyan", pad_edge=False)
    table.add_column("batch", justify="right")
    for depth in depths:
        table.add_column(f"target, depth {depth}", justify="right")
    if drafts:
        table.add_column("draft, depth 0", justify="right")
    for batch in sorted({batch for _, batch in steps}):
        cells = [_cell(steps.get((depth, batch))) for depth in depths]
        if drafts:
            cells.append(_cell(drafts.get((0, batch))))
        table.add_row(str(batch), *cells)
    return table


def _cell(step: Any) -> str:  # noqa: ANN401
    return f"{step.ms:.1f} ±{step.spread_ms:.1f} ms" if step else ""


def calibration_json(found: Calibrated) -> dict[str, Any]:
    """The same for programs: measured steps, remarks, the setting and the plan behind it."""
    calibration, setting = found.calibration, found.setting
    speculation = setting.speculation
    return {
        "model": calibration.model,
        "cached": found.cached,
        "seconds": calibration.seconds,
        "unsure": calibration.unsure,
        "skipped": list(calibration.skipped),
        "remarks": list(calibration.remarks),
        "target": [vars(step) for step in calibration.target],
        "draft": [vars(step) for step in calibration.draft],
        "rounds": len(calibration.rounds),
        "rehearsal_depth": calibration.rehearsal_depth,
        "holdout_errors": [row.error for row in calibration.surface.holdout()],
        "setting": {
            "type": ",".join(speculation.types) or "off",
            "n_max": speculation.n_max,
            "n_min": speculation.n_min,
            "p_min": speculation.p_min,
            "why": setting.reason,
        },
        "plan": setting.plan.to_json() if setting.plan else None,
    }
