"""What type checkers accept of the public names, with which types, and what they refuse.

`accepted_*.py` states types with `assert_type` and has no error. In `refused_*.py` every line that ends in
`# error: A | B` has an error whose code or message contains A or B, and no other line has one. None of them is run.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.once import compute_once

HERE = Path(__file__).parent
ACCEPTED = sorted(HERE.glob("accepted_*.py"))
REFUSED = sorted(HERE.glob("refused_*.py"))
MARK = re.compile(r"# error: (.+)$")
BOUND_S = 300

Errors = dict[tuple[Path, int], list[str]]
"""The errors by file and line: their codes and messages."""


class Ended(NamedTuple):
    """A type checker that has ended."""

    returncode: int
    stdout: str
    stderr: str


def mypy(folders: pytest.TempPathFactory) -> Errors:
    run = _run(folders, "mypy", "--strict", "--output=json", *_files())
    if run.returncode not in (0, 1):
        pytest.fail(f"mypy did not end as it should: {run.stderr or run.stdout}")
    errors: Errors = defaultdict(list)
    for each in map(json.loads, run.stdout.splitlines()):
        if each["severity"] == "error":
            errors[Path(each["file"]).resolve(), each["line"]].append(f"{each['code']}: {each['message']}")
    return errors


def pyright(folders: pytest.TempPathFactory) -> Errors:
    pytest.importorskip("pyright", reason="pyright is not installed")
    run = _run(folders, "pyright", "--outputjson", "--pythonpath", sys.executable, *_files())
    if run.returncode not in (0, 1) or not run.stdout.startswith("{"):
        pytest.skip(f"pyright cannot start here, it needs node: {(run.stderr or run.stdout)[:300]}")
    errors: Errors = defaultdict(list)
    for each in json.loads(run.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            errors[Path(each["file"]).resolve(), line].append(f"{each.get('rule', '')}: {each['message']}")
    return errors


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(params=CHECKERS, scope="module")
def errors(request, tmp_path_factory) -> Errors:
    return CHECKERS[request.param](tmp_path_factory)


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.name)
def test_what_is_meant_is_accepted_and_has_the_asserted_types(errors, file):
    assert {line: found for (where, line), found in errors.items() if where == file} == {}


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.name)
def test_every_misuse_is_refused_and_nothing_else(errors, file):
    marked = dict(marks(file))
    found = {line: texts for (where, line), texts in errors.items() if where == file}
    assert found.keys() == marked.keys()
    wrong = {line: found[line] for line, parts in marked.items() if not any(part in str(found[line]) for part in parts)}
    assert wrong == {}


@pytest.mark.parametrize(("files", "pattern"), [(ACCEPTED, r"assert_type\("), (REFUSED, MARK)])
def test_there_are_at_least_twenty_of_each(files, pattern):
    assert sum(len(re.findall(pattern, line)) for file in files for line in lines_of(file)) >= 20


def marks(file: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines_of(file), 1):
        if mark := MARK.search(line):
            yield number, mark[1].split(" | ")


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _files() -> list[str]:
    return [str(file) for file in (*ACCEPTED, *REFUSED)]


def _run(folders: pytest.TempPathFactory, module: str, *arguments: str) -> Ended:
    def run() -> tuple[int, str, str]:
        command = [sys.executable, "-m", module, *arguments]
        root = HERE.parents[1]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, cwd=root, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    return Ended(*compute_once(module, run, folders))
