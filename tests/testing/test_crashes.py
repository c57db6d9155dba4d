"""The crash kit: it kills where it says, counts what it says, and fails a tool that does not keep its promise."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import (
    Boundary,
    Child,
    Crash,
    NotReached,
    effects_wanted,
    ends_in_doubt,
)
from tests.support.pytest_runs import run_pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/proof/test_tickets.py"


class Desk:
    """A far side in a file: one line for each thing that happened."""

    def __init__(self, folder):
        self.file = folder / "desk"

    def lines(self):
        return self.file.read_text().splitlines() if self.file.exists() else []

    def write(self, line):
        with self.file.open("a") as file:
            file.write(f"{line}\n")

    def count(self):
        return len(self.lines())


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def plain(desk):
    @hr.tool(effect="write")
    def open_ticket(title: str) -> str:
        """Open a ticket."""
        desk.write(title)
        return "opened"

    return open_ticket


def keyed(desk):
    @hr.tool(effect="write", replay="key")
    def open_ticket(title: str, context: hr.Context[None]) -> str:
        """Open a ticket, once for each key."""
        if context.idempotency_key not in desk.lines():
            desk.write(context.idempotency_key)
        return "opened"

    return open_ticket


def verified(desk):
    def look(arguments, context):
        return (
            hr.Found("opened") if arguments["title"] in desk.lines() else hr.NotFound()
        )

    @hr.tool(effect="write", verify=look)
    def open_ticket(title: str) -> str:
        """Open a ticket."""
        desk.write(title)
        return "opened"

    return open_ticket


@pytest.mark.parametrize("make", [plain, keyed, verified])
def test_a_tool_that_says_what_it_is_passes_at_every_boundary(crash, make, desk):
    survived = crash(make(desk), {"title": "slow"}, effects=desk.count)
    assert (survived.status, survived.text) == ("done", "done")
    assert survived.effects == desk.count()


def test_a_tool_gets_the_settings_of_its_run_in_both_processes(crash, desk):
    @hr.tool(effect="write", key="t:{tenant}:{title}")
    def open_ticket(
        title: str,
        context: hr.Context[str],
        tenant: Annotated[str, hr.Injected(secret=False)],
    ) -> str:
        """Open a ticket."""
        desk.write(f"{tenant} {context.deps} {title}")
        return "opened"

    how = {"inject": {"tenant": "acme"}, "deps": "desk", "scope": "a"}
    how |= {"principal": "ann", "system": "Be brief.", "options": hr.Options()}
    survived = crash(open_ticket, {"title": "slow"}, effects=desk.count, **how)
    assert survived.effects == desk.count()
    assert set(desk.lines()) <= {"acme desk slow"}


def at(boundary, tmp_path):
    return Crash(boundary, f"sqlite:///{tmp_path}/crash.db")


def test_a_tool_that_calls_itself_a_key_class_and_is_none_is_found_out(tmp_path, desk):
    @hr.tool(effect="write", replay="key")
    def open_ticket(title: str) -> str:
        """Open a ticket, whatever the key."""
        desk.write(title)
        return "opened"

    with pytest.raises(
        AssertionError,
        match=r"killed after effect \(replay class 'key'\): 2 effects, 1 wanted",
    ):
        at(Boundary.AFTER_EFFECT, tmp_path)(
            open_ticket, {"title": "slow"}, effects=desk.count
        )


def test_a_verify_that_cannot_tell_is_found_out(tmp_path, desk):
    tool = verified(desk).replace(verify=lambda arguments, context: hr.Unknown())
    with pytest.raises(AssertionError, match=r"killed after effect.*IN_DOUBT"):
        at(Boundary.AFTER_EFFECT, tmp_path)(tool, {"title": "slow"}, effects=desk.count)


def test_effects_that_are_counted_in_this_process_are_explained(tmp_path):
    opened = []

    @hr.tool(effect="write")
    def open_ticket() -> str:
        """Open a ticket where nobody sees it."""
        opened.append(1)
        return "opened"

    with pytest.raises(
        AssertionError, match="they must lie outside of the one that is killed"
    ):
        at(Boundary.AFTER_EFFECT, tmp_path)(
            open_ticket, {}, effects=lambda: len(opened)
        )


@pytest.mark.parametrize("boundary", Boundary)
def test_a_call_that_never_comes_to_the_boundary_proves_nothing(
    tmp_path, desk, boundary
):
    with pytest.raises(
        NotReached, match=r"before it came to the boundary.*INVALID_ARGUMENTS"
    ):
        at(boundary, tmp_path)(plain(desk), {"title": 7}, effects=desk.count)


def test_a_read_has_nothing_to_prove(tmp_path):
    look = hr.FunctionTool(
        lambda: 1, name="look", parameters={"type": "object"}, effect="read"
    )
    with pytest.raises(hr.ConfigError, match="is a read"):
        at(Boundary.AFTER_CLAIM, tmp_path)(look, {}, effects=int)


def test_a_store_that_dies_with_its_process_is_refused(desk):
    with pytest.raises(hr.ConfigError, match="a store in memory dies with its process"):
        Crash(Boundary.AFTER_CLAIM, "memory:")(
            plain(desk), {"title": "x"}, effects=desk.count
        )


def test_what_a_person_approved_is_not_asked_again_nor_done_twice(crash, desk):
    tool = plain(desk).replace(approve=True)
    asked = Desk(desk.file.parent)
    asked.file = desk.file.with_name("asked")

    def approver(_):
        asked.write("?")
        return True

    crash(tool, {"title": "slow"}, effects=desk.count, approver=approver)


def test_a_run_of_ones_own_dies_at_its_second_write(crash, desk):
    model = ScriptedModel(
        [
            call("open_ticket", title="first"),
            call("open_ticket", title="second"),
            "Two tickets.",
        ]
    )
    survived = crash.run([keyed(desk)], model=model, effects=desk.count, write=2)
    assert (survived.effects, survived.text) == (2, "Two tickets.")
    assert [result.ok for result in survived.results] == [True, True]


DESK = "HANDRAIL_TEST_DESK"


@hr.tool(effect="write", isolation="process")
def open_ticket_apart(title: str) -> str:
    """Open a ticket, in a process of its own."""
    Desk(Path(os.environ[DESK])).write(title)
    return "opened"


def test_a_tool_in_a_process_of_its_own_is_killed_with_the_rest(
    crash, desk, monkeypatch
):
    monkeypatch.setenv(DESK, str(desk.file.parent))
    crash(open_ticket_apart, {"title": "slow"}, effects=desk.count)


def test_what_a_process_of_the_kit_raises_is_told():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        Child(lambda _: 1 // 0).result()


def test_whoever_does_not_use_the_fixtures_pays_for_nothing(tmp_path):
    test = tmp_path / "test_of_somebody_else.py"
    test.write_text(
        "import sys\n"
        "def test_it():\n"
        "    loaded = [name for name in sys.modules if name.startswith(('handrail.', 'pydantic'))]\n"
        "    assert loaded == ['handrail._version', 'handrail.pytest_plugin']\n"
    )
    told = subprocess.run(
        # another package's plugin may import what ours does not
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin", test],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", "PYTEST_ADDOPTS": ""},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout


def test_the_example_of_the_how_to_holds(tmp_path):
    told = run_pytest(EXAMPLE, "--basetemp", tmp_path / "t", folder=EXAMPLE.parent)
    assert told.returncode == 0, told.stdout
    assert f"{2 * len(Boundary) + 1} passed" in told.stdout


def test_the_how_to_has_the_table_that_is_held():
    page = (ROOT / "docs/how-to/prove-your-own-tool.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1:-1]
        for line in page.splitlines()
        if line.startswith(("| before", "| after"))
    ]
    assert len(rows) == len(Boundary)
    for boundary, (when, *cells) in zip(Boundary, rows, strict=True):
        assert when.strip().startswith(boundary.value)
        for replay, cell in zip(("key", "verify", "none"), cells, strict=True):
            assert cell.strip().startswith(str(effects_wanted(replay, boundary)))
            assert ("IN_DOUBT" in cell) is ends_in_doubt(replay, boundary)
