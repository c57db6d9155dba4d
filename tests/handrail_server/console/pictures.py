"""The pictures of the page on the console: `python -m tests.handrail_server.console.pictures` takes them again.

They are of a real run in a real browser. The test compares coarsely, because fonts and times differ from machine to
machine: a picture is to show what a reader sees, not to hold every pixel.
"""

from __future__ import annotations

import base64
import io
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.handrail_server.console.desk import SLOW, Desk, furnish, open_desk
from tests.handrail_server.console.pages import NARROW, open_page

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/how-to"
FONT = "Liberation Sans"
"""The font of the pictures: the first that the page asks for and that every Linux has a package of."""


def picture_run(browser: Any, desk: Desk) -> bytes:
    """The timeline of a run, and one of its calls."""
    size = {"width": 1280, "height": 760}
    address = f"#/runs/{desk.runs[SLOW]}?call=2.0"
    with open_page(browser, desk, address, size=size) as page:
        page.get_by_test_id("call-card").wait_for()
        return _take(page)


def picture_approval(browser: Any, desk: Desk) -> bytes:
    """A call that waits for a person, who is editing it."""
    size = {"width": 1280, "height": 930}
    address = f"#/approvals?run={desk.runs[SLOW]}"
    with open_page(browser, desk, address, size=size) as page:
        page.get_by_test_id("approval").wait_for()
        page.keyboard.press("e")
        page.locator("#field-graceful").select_option("false")
        page.locator(".split-detail").evaluate("element => element.scrollTo(0, 0)")
        return _take(page)


def picture_phone(browser: Any, desk: Desk) -> bytes:
    """The same run on a telephone, in the dark."""
    address = f"#/runs/{desk.runs[SLOW]}"
    with open_page(browser, desk, address, size=NARROW, theme="dark") as page:
        page.get_by_test_id("timeline").wait_for()
        return _take(page)


PICTURES: dict[str, Callable[[Any, Desk], bytes]] = {
    "console-run.png": picture_run,
    "console-approval.png": picture_approval,
    "console-phone.png": picture_phone,
}


def _take(page: Any) -> bytes:
    page.wait_for_timeout(150)  # the connection's dot turns green
    shot: bytes = page.screenshot()
    return shot


COMPARE = """async ([one, other]) => {
    const [width, height] = [64, 40];
    const read = async (data) => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + data;
        await image.decode();
        const canvas = new OffscreenCanvas(width, height);
        const context = canvas.getContext('2d');
        context.imageSmoothingQuality = 'high';
        context.drawImage(image, 0, 0, width, height);
        return [image.width, image.height, context.getImageData(0, 0, width, height).data];
    };
    const [a, b] = [await read(one), await read(other)];
    if (a[0] !== b[0] || a[1] !== b[1]) return 1;
    let sum = 0;
    for (let i = 0; i < a[2].length; i++) sum += Math.abs(a[2][i] - b[2][i]);
    return sum / a[2].length / 255;
}"""


def has_font(name: str) -> bool:
    """Whether this machine has a font, as fontconfig tells."""
    try:
        found = subprocess.run(["fc-list", name], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return bool(found.stdout)


def difference(browser: Any, one: bytes, other: bytes) -> float:
    """Return how much two pictures differ, from 0 to 1; 1 where their sizes do."""
    page = browser.new_page()
    try:
        texts = [base64.b64encode(each).decode() for each in (one, other)]
        return float(page.evaluate(COMPARE, texts))
    finally:
        page.close()


def _shrink(picture: bytes) -> bytes:
    """Return a picture with few colours, which is a third of the size; as it is where Pillow is not installed."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        return picture
    out = io.BytesIO()
    few = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=0)
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    """Take every picture."""
    from playwright.sync_api import sync_playwright

    from tests.handrail_server.console.conftest import find_browser

    with (
        tempfile.TemporaryDirectory() as folder,
        open_desk(Path(folder)) as desk,
        sync_playwright() as started,
    ):
        desk.runs = furnish(desk)
        browser = started.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox"]
        )
        for name, take in PICTURES.items():
            (FOLDER / name).write_bytes(_shrink(take(browser, desk)))
        browser.close()


if __name__ == "__main__":
    main()
