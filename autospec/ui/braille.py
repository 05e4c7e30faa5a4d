"""A curve in few cells: braille dots, two columns and four rows of them in each."""

from __future__ import annotations

from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def curve(values: Sequence[float], width: int, height: int, mark: int | None = None) -> list[str]:
    """`height` lines of `width` cells; the axis starts at 0, the highest value touches the top.

    The value with index `mark` is shown by a ● in its cell.
    """
    cells = [[0] * width for _ in range(height)]
    top = max(values, default=0.0)
    if width < 1 or height < 1 or top <= 0:
        return [" " * max(0, width)] * max(0, height)
    columns, rows = 2 * width, 4 * height
    levels = [_level(values, x / max(1, columns - 1), top, rows) for x in range(columns)]
    for x, level in enumerate(levels):
        before = levels[x - 1] if x else level
        for y in range(min(level, before + (level > before)), max(level, before - 1) + 1):
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    lines = [[chr(_BLANK + dots) if dots else " " for dots in row] for row in cells]
    if mark is not None:
        share = mark / max(1, len(values) - 1)
        y = _level(values, share, top, rows)
        lines[y // 4][min(width - 1, round(share * (width - 1)))] = "●"
    return ["".join(line) for line in lines]


def _level(values: Sequence[float], share: float, top: float, rows: int) -> int:
    """The row of dots, from the top, at `share` (0 to 1) of the curve's length."""
    place = share * (len(values) - 1)
    left = min(int(place), max(0, len(values) - 2))
    right = min(left + 1, len(values) - 1)
    value = values[left] + (values[right] - values[left]) * (place - left)
    return min(rows - 1, max(0, round((1 - value / top) * (rows - 1))))
