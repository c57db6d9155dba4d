"""Print what handrail costs: `python -m benchmarks [--quick] [--json] [--plot FILE] [NAME ...]`.

Every figure is CPU time of this process. What is compared is measured in turn, round after round, and the best round of
each counts: machines drift, ratios of one process do not. A missed goal is printed, not failed on; the exit code is 1
only when a ratio is more than twice its usual value, which no busy machine explains.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    adapters,
    conversations,
    costs,
    dispatch,
    grammars,
    loops,
    mcp,
    mcp_gateway,
    processes,
    questions,
    retention,
    selection,
    shapes,
    stores,
)
from benchmarks.measuring import Figure
from benchmarks.plot import plot_goals

ROWS: dict[str, Callable[[bool], list[Figure]]] = {
    "loop": lambda quick: asyncio.run(loops.ten_by_four(quick)),
    "shapes": lambda quick: asyncio.run(shapes.shapes_of_calls(quick)),
    "results": lambda quick: asyncio.run(shapes.long_results(quick)),
    "sync": loops.sync_tools,
    "crowd": lambda quick: asyncio.run(loops.two_hundred_at_once(quick)),
    "length": lambda quick: asyncio.run(loops.length(quick)),
    "http": loops.over_http,
    "call": lambda quick: asyncio.run(loops.one_call(quick)),
    "tools": costs.thousand_tools,
    "stream": costs.streaming,
    "register": costs.register,
    "worker": lambda quick: asyncio.run(costs.worker_calls(quick)),
    "boxes": costs.boxes,
    "import": costs.importing,
    "stores": stores.durable_writes,
    "durable": lambda quick: asyncio.run(stores.durable_crowd(quick)),
    "turn": lambda quick: asyncio.run(stores.lone_turns(quick)),
    "dispatch": dispatch.figures,
    "questions": questions.questions,
    "retention": retention.figures,
    "processes": processes.figures,
    "selection": selection.selection,
    "conversations": conversations.conversations,
    "adapters": lambda quick: asyncio.run(adapters.under_frameworks(quick)),
    "mcp": mcp.figures,
    "gateway": mcp_gateway.figures,
    "grammars": grammars.grammars,
}


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"what to measure: {', '.join(ROWS)}; all by default",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for CI")
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on standard output"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw figures and goals, as SVG"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - ROWS.keys():
        parser.error(
            f"there is no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}"
        )
    figures: list[Figure] = []
    for name in options.names or ROWS:
        rows = ROWS[name](options.quick)
        figures += rows
        if not options.json:
            print(*rows, sep="\n", flush=True)
    if options.json:
        print(
            json.dumps(
                {
                    "v": 1,
                    "python": sys.version.split()[0],
                    "figures": [row.as_json() for row in figures],
                }
            )
        )
    if options.plot:
        options.plot.write_text(plot_goals(figures), encoding="utf-8")
    return 1 if any(figure.is_gross for figure in figures) else 0


sys.exit(main())
