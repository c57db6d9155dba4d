"""What can be said of the console without a browser: its words, its size, and that it is built from what is here."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONSOLE = ROOT / "console"
SOURCES = sorted((CONSOLE / "src").rglob("*.ts*"))
ASSETS = ROOT / "src/handrail_server/assets"

PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _words(language: str) -> dict[str, str]:
    text = (CONSOLE / f"src/{language}.json").read_text(encoding="utf-8")
    words: dict[str, str] = json.loads(text)
    return words


def test_both_languages_have_the_same_sentences():
    english, chinese = _words("en"), _words("zh")
    assert list(english) == list(chinese)
    for key, sentence in english.items():
        for form in sentence.split("|"):
            assert set(PLACEHOLDER.findall(form)) == set(
                PLACEHOLDER.findall(chinese[key])
            ), key


def test_every_sentence_is_used():
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    families = re.compile(
        r"(status|risk|app\.role|checklist|servers\.state|segment|run)\."
    )
    unused = [
        key
        for key in _words("en")
        if f'"{key}"' not in source and not families.match(key)
    ]
    assert unused == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_text_can_become_markup_or_program(path):
    forbidden = (
        r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write"
        r"|\beval\(|new Function|srcdoc|DOMParser|https?://(?!\.)"
    )
    assert re.findall(forbidden, path.read_text(encoding="utf-8")) == []


def test_the_page_is_light():
    files = [path for path in ASSETS.rglob("*") if path.is_file()]
    packed = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    assert packed < 60 * 1024


def test_the_page_names_nothing_of_elsewhere():
    page = (ASSETS / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"https?:", page) == []
    assert "<script>" not in page and "style=" not in page
    for name in re.findall(r'(?:src|href)="\./([^"]+)"', page):
        assert (ASSETS / name).is_file()


def test_the_page_is_built_into_the_package_that_carries_it():
    config = (ROOT / "console/vite.config.ts").read_text(encoding="utf-8")
    assert f'outDir: "../{ASSETS.relative_to(ROOT).as_posix()}"' in config


@pytest.mark.slow
def test_the_built_page_is_built_from_these_sources(tmp_path):
    """Build again and compare byte by byte; `make console` writes what is committed."""
    if shutil.which("npm") is None:
        pytest.skip("no npm on PATH")
    bench = ROOT / "build/console"
    shutil.copytree(
        CONSOLE,
        bench,
        ignore=shutil.ignore_patterns("node_modules"),
        dirs_exist_ok=True,
    )
    installed = bench / "node_modules/.installed"
    lock = (CONSOLE / "package-lock.json").read_text(encoding="utf-8")
    try:
        if not installed.exists() or installed.read_text(encoding="utf-8") != lock:
            _run(bench, "npm", "ci", "--silent", "--no-audit", "--no-fund")
            installed.write_text(lock, encoding="utf-8")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the packages of the console cannot be had here: {error}")
    for stale in (bench / "src").rglob("*"):
        if stale.is_file() and not (CONSOLE / stale.relative_to(bench)).exists():
            stale.unlink()
    out = tmp_path / "assets"
    _run(bench, "npm", "run", "--silent", "check")
    _run(bench, "npx", "--no-install", "vite", "build", "--outDir", str(out))
    assert _contents(out) == _contents(ASSETS)


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
