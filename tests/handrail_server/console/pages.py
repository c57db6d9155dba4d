"""A page in the browser that notes what must not happen: errors, failed requests, requests to elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.handrail_server.console.desk import SLOW, Desk

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}


def screens(runs: Mapping[str, str]) -> dict[str, str]:
    """Return the address of every screen by its name."""
    run = f"#/runs/{runs[SLOW]}"
    return {
        "runs": "#/runs",
        "runs-filtered": "#/runs?status=waiting&tool=restart_service",
        "timeline": run,
        "call-cut": f"{run}?call=1.0",
        "call-repaired": f"{run}?call=2.0",
        "call-failed": f"{run}?call=3.0",
        "call-waiting": f"{run}?call=5.0",
        "chat": f"{run}?view=chat",
        "debug": f"{run}?view=debug",
        "wire": f"{run}?view=wire",
        "prompt": f"{run}?view=prompt",
        "cost": f"{run}?view=cost",
        "run-audit": f"{run}?view=audit",
        "approvals": "#/approvals",
        "ledger": "#/ledger",
        "audit": "#/audit",
        "tools": "#/tools",
        "tool": "#/tools/get_metrics",
        "live": "#/live",
        "servers": "#/servers",
    }


@contextmanager
def open_page(
    browser: Any,
    desk: Desk,
    address: str = "",
    *,
    theme: str = "light",
    language: str = "en",
    size: Mapping[str, int] = WIDE,
) -> Iterator[Any]:
    """Open the console, and fail at the end if anything went wrong that nobody looked for."""
    context = browser.new_context(
        color_scheme=theme,
        locale={"en": "en-US", "zh": "zh-CN"}[language],
        viewport=dict(size),
        permissions=["clipboard-read", "clipboard-write"],
        timezone_id="UTC",
    )
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.wrongs = wrongs = []
    own = urlsplit(desk.url).netloc
    page.on("pageerror", lambda error: wrongs.append(f"error: {error}"))
    page.on(
        "console",
        lambda line: (
            wrongs.append(f"console: {line.text}") if line.type == "error" else None
        ),
    )
    page.on("request", lambda sent: _note_foreign(wrongs, own, sent.url))
    page.on(
        "response",
        lambda got: (
            wrongs.append(f"{got.status}: {got.url}") if got.status >= 400 else None
        ),
    )
    try:
        page.goto(desk.url + address)
        page.locator("main#main").wait_for()
        yield page
        assert wrongs == []
    finally:
        context.close()


def _note_foreign(wrongs: list[str], own: str, url: str) -> None:
    if urlsplit(url).netloc != own:
        wrongs.append(f"elsewhere: {url}")


def go(page: Any, address: str) -> None:
    """Go to a screen without loading the page anew, and wait until it shows something."""
    page.evaluate("address => { location.hash = address }", address)
    page.wait_for_function(
        """() => {
            const main = document.querySelector('main');
            const waits = [...main.querySelectorAll('.empty')].some(e => /…$/.test(e.textContent));
            return main.textContent && !waits;
        }"""
    )
