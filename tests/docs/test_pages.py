"""Every code block of the README and the docs is a file that runs, and every output block is what it printed.

`python -m tests.docs.test_pages --write` puts the files and their outputs into the pages.
"""

import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs import build
from handrail.errors import Code
from tests.support import api_page, dialect_page
from tests.support.effort import volume
from tests.support.pictures import PICTURES, demo_output, drawn, lines_in, lines_of

ROOT = Path(__file__).parents[2]
ROOT_PAGES = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in ROOT_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"<!-- (?P<kind>file|output): (?P<path>\S+) -->\n```(?P<language>\w*)\n(?P<body>.*?)```",
    re.S,
)
FRAMEWORKS = {
    "examples/frameworks/under_agno.py": "agno",
    "examples/frameworks/under_adk.py": "google.adk",
    "examples/frameworks/under_strands.py": "strands",
    "examples/guide/30_langchain.py": "langchain",
}
"""Programs under a framework: one in no extra runs where it is installed. Its warnings are its own."""
_DIFFERENT_EACH_TIME = {
    r"\br_[0-9a-f]{27}\b": "r_1a220cf82805f0c31aa4b7de902",  # runs
    r"\br_[0-9a-f]{12}\b": "r_5f0c31aa94d2",  # handles of long results
    r"reference [0-9a-f]{8}": "reference 5f0c31aa",
    r"\d+\.\d s of": "0.1 s of",
}
LINK = re.compile(r"\]\((?P<target>[^)#:]+)(#[^)]*)?\)")


@cache
def output_of(path: str) -> str:
    """What a program prints, with fixed ids and times in place of those that differ from run to run."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    warnings = "ignore" if path in FRAMEWORKS else "error"
    ran = subprocess.run(
        [sys.executable, "-W", warnings, ROOT / path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
        encoding="utf-8",
    )
    told = ran.stdout
    for pattern, fixed in _DIFFERENT_EACH_TIME.items():
        told = re.sub(pattern, fixed, told)
    return told


def wanted(block: re.Match[str]) -> str:
    if block["kind"] == "file":
        return (ROOT / block["path"]).read_text(encoding="utf-8")
    if missing_framework(block["path"]):
        return block["body"]
    return output_of(block["path"])


def missing_framework(path: str) -> str:
    """Return the framework that a program needs and that is not installed; empty if none is missing."""
    framework = FRAMEWORKS.get(path, "")
    try:
        is_missing = bool(framework) and find_spec(framework) is None
    except ModuleNotFoundError:  # of the package around it
        is_missing = True
    return framework if is_missing else ""


def blocks() -> list[tuple[Path, re.Match[str]]]:
    return [
        (page, block)
        for page in PAGES
        if page.exists()
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def is_only_run_in_all(page: Path, block: re.Match[str]) -> bool:
    """Whether it is the output of a program of the how-to pages, which are sixty of a kind."""
    return block["kind"] == "output" and page.parent.name == "how-to"


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(
            *(page, block),
            id=f"{page.name}:{block['kind']}:{block['path']}",
            marks=volume if is_only_run_in_all(page, block) else [],
        )
        for page, block in blocks()
    ],
)
def test_a_block_is_the_file_or_what_it_prints(page, block):
    if block["kind"] == "output" and missing_framework(block["path"]):
        pytest.skip(f"{missing_framework(block['path'])} is not installed")
    assert block["body"] == wanted(block), (
        f"run: python -m tests.docs.test_pages --write  (for {page.name})"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    targets = {
        found["target"]: (page.parent / found["target"]).resolve()
        for found in LINK.finditer(text)
    }
    generated = {build.DOCS / path for path in build.generated_pages()}
    assert [
        link
        for link, target in targets.items()
        if not (target.exists() or target in generated)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_of_a_page_is_a_file(page):
    loose = re.findall(
        r"(?<!-->\n)```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S
    )
    assert loose == []


def test_both_readmes_show_the_same_programs_and_tables():
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "README.zh-CN.md")
    )
    for count in ("\n## ", "\n|", "<!-- file:", "<!-- output:", "\n```"):
        assert english.count(count) == chinese.count(count), count


@pytest.mark.parametrize("language", PICTURES)
def test_the_picture_shows_what_the_demo_prints(language):
    # two calls side by side may be told in either order
    shown = sorted(lines_of(demo_output(language)))
    drawn_lines = sorted(lines_in(PICTURES[language].read_text(encoding="utf-8")))
    assert drawn_lines == shown, "run: python -m tests.docs.test_pages --write"


@pytest.mark.parametrize("language", PICTURES)
def test_the_picture_needs_nothing_from_outside(language):
    links = re.findall(
        r"https?://[^\"' )]+", PICTURES[language].read_text(encoding="utf-8")
    )
    assert set(links) <= {"http://www.w3.org/2000/svg"}


def test_the_english_readme_has_no_chinese_and_the_chinese_programs_speak_chinese():
    # after the link to the other
    english = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    assert re.findall("[\u4e00-\u9fff]+", english) == []
    for program in (ROOT / "examples/zh").glob("*.py"):
        head = program.read_text(encoding="utf-8").partition("\n")[0]
        assert re.search("[\u4e00-\u9fff]", head), program.name


def test_the_page_on_dialects_shows_one_call_in_each_of_them():
    assert dialect_page.shown() == dialect_page.wanted(), (
        "run: python -m tests.docs.test_pages --write"
    )


def test_the_page_on_errors_has_a_row_for_every_code():
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    assert [code for code in Code if f"| `{code}` |" not in text] == []


def write() -> None:
    """Put files and outputs into the pages, and draw the picture."""
    dialect_page.write()
    api_page.write()
    configuration = build.DOCS / "reference/configuration.md"
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(
        build.PROVIDER_REGION.sub(lambda _: build.provider_table(), text),
        encoding="utf-8",
    )
    for language, picture in PICTURES.items():
        picture.write_text(drawn(demo_output(language)), encoding="utf-8")
    for page in filter(Path.exists, PAGES):
        text = page.read_text(encoding="utf-8")
        page.write_text(
            BLOCK.sub(
                lambda b: (
                    f"<!-- {b['kind']}: {b['path']} -->\n```{b['language']}\n{wanted(b)}```"
                ),
                text,
            ),
            encoding="utf-8",
        )


if __name__ == "__main__" and "--write" in sys.argv:
    write()
