"""The chart of figures and goals."""

from xml.etree import ElementTree

from benchmarks.measuring import Figure
from benchmarks.plot import plot_goals

BARS = ".//{http://www.w3.org/2000/svg}rect[@height='12']"


def test_a_figure_has_a_bar_as_long_as_its_multiple_of_the_goal():
    figures = [
        Figure("a <call>", 1.0, "x", goal=2.0),
        Figure("import", 3.0, "x", goal=2.0),
        Figure("without a goal", 1.0, "ms"),
        Figure("far beyond", 900.0, "x", goal=2.0),
    ]
    svg = plot_goals(figures)
    met, missed, far = ElementTree.fromstring(svg).findall(BARS)
    assert (
        float(met.get("width")) < float(missed.get("width")) < float(far.get("width"))
    )
    assert met.get("fill") != missed.get("fill") == far.get("fill")
    assert "3 x, missed" in svg
    assert "without a goal" not in svg
