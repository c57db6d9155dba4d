"""Measure the console's page in a real browser: `python -m benchmarks.console_page`.

A run of 2,000 calls is made and opened. Printed are the time to the first row that can be read, from a new page and an
empty cache; frames while it is scrolled by 120 pixels a frame, as a quick flick does; and the time from an event to its
row on the page.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.handrail_server.console.conftest import find_browser
from tests.handrail_server.console.desk import TICKET, Desk, open_desk

import handrail as hr
from handrail.messages import Turn
from handrail.testing import ScriptedModel, call

TURNS = 500
CALLS_PER_TURN = 4
ROUNDS = 5

SCROLL = """async () => {
    const rows = document.querySelector('[data-testid=timeline]');
    const frames = [];
    await new Promise(done => {
        let last = performance.now();
        let step = 0;
        const draw = now => {
            frames.push(now - last);
            last = now;
            rows.scrollTop = ++step * 120;
            if (step < 180) requestAnimationFrame(draw); else done();
        };
        requestAnimationFrame(draw);
    });
    return frames.slice(2);
}"""


@hr.tool(effect="read", timeout_s=5)
async def look(n: int) -> str:
    """Look at one thing."""
    return f"thing {n}: nothing unusual in {n * 17 % 97} places"


async def make_large_run(store: str) -> str:
    """Carry out a run of 2,000 calls and return its name."""
    turns: list[Any] = [
        Turn(
            calls=[call("look", n=turn * 10 + each) for each in range(CALLS_PER_TURN)],
            finish="calls",
        )
        for turn in range(TURNS)
    ]
    budget = hr.Budget(turns=TURNS + 5, calls=TURNS * CALLS_PER_TURN + 5, time_s=600)
    async with hr.Runtime([look], store=store) as runtime:
        run = await runtime.run(
            "look at everything", model=ScriptedModel([*turns, "Done."]), budget=budget
        )
    return run.id


def first_row_ms(browser: Any, address: str) -> float:
    """Return the time from opening a new page to the first row of the timeline."""
    page = browser.new_page()
    started = time.perf_counter()
    page.goto(address)
    page.locator("[data-testid=timeline] li").first.wait_for()
    elapsed = (time.perf_counter() - started) * 1000
    page.close()
    return elapsed


def frames_per_second(browser: Any, address: str) -> tuple[float, float]:
    """Return the mean frames per second over a scroll of three seconds, and the slowest frame in ms."""
    page = browser.new_page()
    page.goto(address)
    page.locator("[data-testid=timeline] li").first.wait_for()
    frames = page.evaluate(SCROLL)
    page.close()
    return 1000 / statistics.mean(frames), max(frames)


def event_ms(page: Any, desk: Desk) -> float:
    """Return the time from the answer to `POST /runs` to the run's row on the page."""
    run = desk.start(TICKET)
    started = time.perf_counter()
    page.locator(f'a[href="#/runs/{run}"]').wait_for()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        run = asyncio.run(make_large_run(f"sqlite:///{folder}/desk.db"))
        with open_desk(Path(folder)) as desk, sync_playwright() as started:
            browser = started.chromium.launch(
                executable_path=find_browser(), args=["--no-sandbox"]
            )
            address = f"{desk.url}#/runs/{run}"
            calls = desk.get(f"/runs/{run}")["run"]["calls"]
            paints = [first_row_ms(browser, address) for _ in range(ROUNDS)]
            fps, slowest = frames_per_second(browser, address)
            page = browser.new_page()
            page.goto(desk.url)
            page.get_by_test_id("runs").wait_for()
            events = [event_ms(page, desk) for _ in range(ROUNDS)]
            browser.close()
    figures = {
        "calls": calls,
        "first_row_ms": round(min(paints)),
        "first_row_ms_median": round(statistics.median(paints)),
        "frames_per_second": round(fps, 1),
        "slowest_frame_ms": round(slowest, 1),
        "event_ms_median": round(statistics.median(events)),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
