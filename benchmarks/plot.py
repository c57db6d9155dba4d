"""The figures against their goals, as one SVG: a bar for each, and a line where the goal is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.measuring import Figure

WIDTH = 900
_LABELS = 420
_RIGHT = 130
_ROW = 20
_TOP = 44
_LEAST = 1 / 8
_MOST = 4.0
"""A bar ends here, however far its figure is from its goal; the text has the figure."""


def plot_goals(figures: Sequence[Figure]) -> str:
    """Return a chart of the figures that have a goal, each as a multiple of it, on a logarithmic scale."""
    rows = [(each, each.goal) for each in figures if each.goal]
    height = _TOP + _ROW * len(rows) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(8, 18, "Figures as multiples of their goals; shorter is better"),
    ]
    for multiple in (0.25, 0.5, 1, 2):
        x = _along(multiple)
        colour = "#222" if multiple == 1 else "#ddd"
        parts.append(f'<path d="M{x:.1f} {_TOP - 8}V{height - 20}" stroke="{colour}"/>')
        parts.append(_text(x - 8, height - 6, f"{multiple:g} x"))
    for number, (figure, goal) in enumerate(rows):
        y = _TOP + _ROW * number
        is_met = figure.value <= goal
        end = _along(figure.value / goal)
        colour = "#0b6e99" if is_met else "#c2410c"
        width = f"{end - _LABELS:.1f}"
        parts.append(
            f'<rect x="{_LABELS}" y="{y}" width="{width}" height="12" fill="{colour}"/>'
        )
        verdict = "" if is_met else ", missed"
        parts.append(_text(8, y + 10, figure.what))
        parts.append(
            _text(end + 6, y + 10, f"{figure.value:.3g} {figure.unit}{verdict}")
        )
    return "\n".join([*parts, "</svg>\n"])


def _along(multiple: float) -> float:
    bounded = min(max(multiple, _LEAST), _MOST)
    share = math.log(bounded / _LEAST) / math.log(_MOST / _LEAST)
    return _LABELS + share * (WIDTH - _LABELS - _RIGHT)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
