"""A line chart as SVG, drawn by hand: axes, lines, a legend. No library, and the same bytes for the same points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH = 720
HEIGHT = 400
_LEFT = 60
_RIGHT = 180
_TOP = 30
_BOTTOM = 50
_COLOURS = ("#0b6e99", "#c2410c", "#3f7d20", "#7e3ff2", "#9a6b00", "#b0125b")


def line_chart(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    *,
    title: str,
    across: str,
    up: str,
) -> str:
    """Return a chart of shares from 0 to 1 against counts, on a logarithmic scale.

    Args:
        lines: Points of each line, by its name.
        across: What the counts are.
        up: What the shares are.
    """
    counts = sorted({count for points in lines.values() for count, _ in points})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(_LEFT, 18, title, weight="bold"),
        _text(
            (_LEFT + WIDTH - _RIGHT) / 2,
            HEIGHT - 10,
            across,
            anchor="middle",
        ),
        _text(8, _TOP - 4, up),
    ]
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(
            _text(
                _LEFT - 8,
                y + 4,
                f"{tenth / 10:.1f}",
                anchor="end",
            )
        )
    for count in counts:
        parts.append(
            _text(
                _x(count, counts),
                HEIGHT - _BOTTOM + 18,
                f"{count:,}",
                anchor="middle",
            )
        )
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(_x(count, counts), _y(share)) for count, share in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts += (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
            for x, y in places
        )
        row = _TOP + 14 + 18 * number
        parts.append(
            f'<path d="M{WIDTH - _RIGHT + 14} {row - 4}h18" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(WIDTH - _RIGHT + 38, row, name))
    return "\n".join([*parts, "</svg>\n"])


def _x(count: int, counts: Sequence[int]) -> float:
    first = math.log(counts[0])
    last = math.log(counts[-1])
    if last > first:
        along = (math.log(count) - first) / (last - first)
    else:
        along = 0.5
    return _LEFT + 20 + along * (WIDTH - _LEFT - _RIGHT - 40)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal"
) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
