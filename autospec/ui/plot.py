"""Cost curves, drawn in the terminal or written as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plotext import figure

from autospec.errors import UsageError

_HEIGHT = 18
_TICKS = 8

Marks = Sequence[tuple[float, str]]
"""Points of the curve to point out: the x of each and what it is."""

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Further lines by name, each with its own x and y."""


def cost_curve(
    x: Sequence[float],
    y: Sequence[float],
    *,
    marks: Marks = (),
    lines: Lines | None = None,
    title: str = "",
    x_label: str = "tokens in the batch",
    width: int = 72,
) -> str:
    """The curve as text of at most `width` columns (the terminal's width caps it), no colours."""
    figure.clear()
    figure.plot_size(width, _HEIGHT)
    signals = [figure.signal(list(x), list(y), marker="braille").lines().label("measured")]
    for name, (line_x, line_y) in (lines or {}).items():
        signals.append(figure.signal(list(line_x), list(line_y), marker="·").lines().label(name))
    for position, name in marks:
        height = y[list(x).index(position)]
        signals.append(figure.signal([position], [height], marker="●").label(name))
    for signal in signals:
        figure.draw(signal)
    figure.title(title)
    figure.label(x_label)
    figure.legend(bool(lines or marks), max(x), max(y), ha="right", va="top", relative=True)
    figure.ruler("y").lim(0, max(y))
    figure.ruler("x").ticks(_ticks(x), [f"{tick:g}" for tick in _ticks(x)])
    return str(figure.build().string(colorless=True)).rstrip()


def write_cost_curve(
    path: Path,
    x: Sequence[float],
    y: Sequence[float],
    *,
    marks: Marks = (),
    lines: Lines | None = None,
    title: str = "",
    x_label: str = "tokens in the batch",
    y_label: str = "",
) -> None:
    """The same as a picture (PNG) at `path`; UsageError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "a picture needs matplotlib, which is not installed",
            hint="pip install 'autospec[bench]', or leave --png out for the plot in the terminal",
        ) from None

    picture = Figure(figsize=(9, 5), layout="constrained")
    axes = picture.subplots()
    axes.plot(x, y, marker=".", label="measured")
    for name, (line_x, line_y) in (lines or {}).items():
        axes.plot(line_x, line_y, linestyle="--", label=name)
    for position, name in marks:
        axes.plot([position], [y[list(x).index(position)]], "o", label=name)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if lines or marks:
        axes.legend()
    try:
        picture.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def _ticks(x: Sequence[float]) -> list[float]:
    """At most `_TICKS` of the measured positions, the first and the last among them."""
    spots = sorted(set(x))
    step = max(1, -(-len(spots) // _TICKS))
    return [*spots[:-1:step], spots[-1]]
