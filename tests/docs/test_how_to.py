"""The pages that start from trouble, and the page of promises: their form, their links, and the tests that they name.

That their programs are files, and their outputs what these print, holds `test_docs` for every page.
"""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.stores.memory import MemoryStore

ROOT = Path(__file__).parents[2]
INDEX, PROMISES = ROOT / "docs/README.md", ROOT / "docs/explanation/promises.md"
TROUBLES = [
    "a-retry-created-the-ticket-twice", "a-query-hung-the-service", "two-calls-raced", "a-result-blew-the-context",
    "the-wrong-tool-was-picked", "the-model-did-not-know-how-to-go-on",
]  # fmt: skip
PAGES = [ROOT / f"docs/how-to/{trouble}.md" for trouble in TROUBLES]
PROGRAMS = sorted((ROOT / "examples/how-to").glob("*.py"))
SECTIONS = [
    "Why it happens",
    "What ends it",
    "What you now see",
    "What is not promised",
]
NAMED = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")


def text_of(page):
    return page.read_text(encoding="utf-8")


def headings(text):
    return re.findall(r"^## (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_goes_from_the_trouble_to_what_is_not_promised(page):
    assert [name for name in headings(text_of(page)) if name in SECTIONS] == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_shows_a_program_with_its_output(page):
    text = text_of(page)
    shown = re.findall(r"<!-- file: (\S+) -->", text)
    assert shown
    assert re.findall(r"<!-- output: (\S+) -->", text) == shown


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_of_a_how_to_is_shown_and_fits_on_a_screen_or_two(program):
    assert any(
        f"<!-- file: examples/how-to/{program.name} -->" in text_of(page)
        for page in PAGES
    )
    assert len(text_of(program).splitlines()) <= 60


@pytest.mark.parametrize("page", [*PAGES, PROMISES], ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_are_there(page):
    named = NAMED.findall(text_of(page))
    lost = [
        f"{file}::{test}"
        for file, test in named
        if f"def {test}(" not in text_of(ROOT / file)
    ]
    assert named
    assert lost == []


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_both_readmes_lead_to_every_trouble_and_to_the_promises(readme):
    text = text_of(ROOT / readme)
    assert [
        trouble for trouble in TROUBLES if f"(docs/how-to/{trouble}.md)" not in text
    ] == []
    assert "(docs/explanation/promises.md)" in text


def test_the_index_leads_to_every_page():
    pages = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page != INDEX and page.parent.name != "decisions"
    ]
    text = text_of(INDEX)
    lost = [
        page.name
        for page in pages
        if f"({page.relative_to(INDEX.parent).as_posix()})" not in text
    ]
    assert lost == [], "add a line to docs/README.md"


def test_every_promise_says_what_is_not_promised_and_has_tests_in_the_table():
    _, *promises, tests = re.split(r"^## ", text_of(PROMISES), flags=re.M)
    assert [each[:2] for each in promises] == [f"{number}." for number in range(1, 8)]
    assert [each for each in promises if "**Not promised.**" not in each] == []
    shown = re.findall(rf"^\| (\d) \| {NAMED.pattern} \|$", tests, re.M)
    assert {number for number, *_ in shown} == set("1234567")


# ---------------------------------------------------------------------- where it falls short today, as promises.md says


class Freezes(MemoryStore):
    """Answers its first claim when the lease is over and somebody else has carried the act out."""

    meanwhile = None

    def claim(self, claim):
        if (other := self.meanwhile) is None:
            return super().claim(claim)
        self.meanwhile = None
        claimed = super().claim(replace(claim, lease_s=-1))
        other()
        return claimed


def test_today_a_lease_that_ends_early_by_the_clock_of_the_store_lets_a_verified_write_start_twice():
    starts = []

    @hr.tool(
        effect="write", key="mail", verify=lambda arguments, context: hr.NotFound()
    )
    def send_mail() -> str:
        """Send it."""
        starts.append(1)
        return "sent"

    store = Freezes()
    with (
        hr.SyncRuntime([send_mail], store=store) as frozen,
        hr.SyncRuntime([send_mail], store=store) as other,
    ):
        store.meanwhile = lambda: other.call("send_mail")
        frozen.call("send_mail")
    assert len(starts) == 2


def test_a_conversation_of_handle_goes_on_in_a_new_runtime_and_its_repeats_are_seen():
    @hr.tool(effect="write")
    def add_note(text: str) -> str:
        """Add it."""
        return text

    def turn(text):
        with hr.SyncRuntime([add_note], store=store) as runtime:
            return runtime.call("add_note", {"text": text}, run="r")

    store = MemoryStore()
    assert turn("one").ok
    assert turn("two").ok
    assert turn("one").replayed


def test_today_a_small_budget_is_exceeded_by_the_line_that_speaks_of_the_cut():
    rows = hr.FunctionTool(
        lambda: ["row"] * 1_000,
        name="rows",
        effect="read",
        parameters={"type": "object"},
    )
    with hr.SyncRuntime([rows], result_bytes=600) as runtime:
        size = len(runtime.call("rows", run="r").text)
    assert 600 < size < 600 + 320


# ------------------------------------------------------------------------------------------------------ the tutorial

TUTORIAL = ROOT / "docs/tutorial/a-write-that-survives-kill-9.md"
STEPS = sorted((ROOT / "examples/tutorial").glob("step_*.py"))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_of_the_tutorial_is_shown_with_its_output_and_fits_on_a_screen(step):
    for kind in ("file", "output"):
        assert f"<!-- {kind}: examples/tutorial/{step.name} -->" in text_of(TUTORIAL)
    assert len(text_of(step).splitlines()) <= 60


def test_every_payment_of_the_tutorial_is_made_once_from_the_second_step_on():
    shown = re.findall(
        r"<!-- output: (\S+) -->\n```\n(.*?)```", text_of(TUTORIAL), re.S
    )
    counts = {
        path[-9:-3]: re.findall(r"payments: +(\d)$", output, re.M)
        for path, output in shown
    }
    assert counts == {
        "step_1": ["1"],
        "step_2": ["2", "1"],            # without a key, with one
        "step_3": ["1"],
        # killed before, asked again; killed after, asked again
        "step_4": ["0", "1", "1", "1"],
        "step_5": ["1"],
    }  # fmt: skip
