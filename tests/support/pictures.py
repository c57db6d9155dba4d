"""The README's picture: what `make demo` shows, as an SVG without anything from outside.

`python -m tests.docs.test_pages --write` writes it again.
"""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from handrail.cli.demo.story import TEXTS

ROOT = Path(__file__).parents[2]
PICTURES = {"en": ROOT / "docs/demo.svg", "zh": ROOT / "docs/demo.zh-CN.svg"}
"""By language."""
COLUMNS = 104
FONTS = "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"


def demo_output(language: str) -> str:
    """What the demo prints on a terminal with colour, up to its last turn."""
    environment = {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    environment.pop("NO_COLOR", None)
    ran = subprocess.run(
        [sys.executable, "-m", "handrail", "demo", "--no-input", "--lang", language],
        capture_output=True, check=True, timeout=60, env=environment,
    )  # fmt: skip
    return ran.stdout.decode().split(TEXTS[language].to_read)[0].rstrip()


def drawn(output: str) -> str:
    """The output as an SVG. The fonts are the reader's own, and wide characters are as wide as they are."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True,
            width=COLUMNS,
            file=nowhere,
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(Text.from_ansi(output))
        svg = console.export_svg(title="make demo", unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S).replace(
        "Fira Code", FONTS
    )
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    return _TEXT.sub(_place_text, svg)


_TEXT = re.compile(r'x="([\d.]+)"( y="[\d.]+") textLength="([\d.]+)"([^>]*)>([^<]*)<')


def _place_text(element: re.Match[str]) -> str:
    """Return a text as wide as its cells. Its indentation becomes a place: a font of other widths would stretch it."""
    x, y, length, rest, escaped = element.groups()
    text = html.unescape(escaped)
    cell_width = float(length) / max(1, len(text))
    words = text.lstrip("\xa0") or text
    left = float(x) + cell_width * (len(text) - len(words))
    width = cell_width * cell_len(words)
    escaped_words = html.escape(words).replace("\xa0", "&#160;")
    return f'x="{left:.1f}"{y} textLength="{width:.1f}"{rest}>{escaped_words}<'


def lines_of(output: str) -> list[str]:
    """The words of the output, line by line, without times and ids, which differ from run to run."""
    return [
        _timeless(line)
        for line in Text.from_ansi(output).plain.splitlines()
        if line.strip()
    ]


def _timeless(line: str) -> str:
    return re.sub(r"r_[0-9a-f]{8,32}|\d+\.\d+|; again .*|\s+| s\b", "", line)


def lines_in(svg: str) -> list[str]:
    """The same of the picture, whose texts stand by line."""
    by_line: dict[str, list[str]] = {}
    for y, text in re.findall(
        r'<text class="demo-r\d+" x="[^"]*" y="([\d.]+)"[^>]*>([^<]*)</text>', svg
    ):
        by_line.setdefault(y, []).append(html.unescape(text).replace("\xa0", " "))
    lines = (
        "".join(texts)
        for _, texts in sorted(by_line.items(), key=lambda item: float(item[0]))
    )
    return [_timeless(line) for line in lines if line.strip()]
