"""The console in a real browser, against a real server."""

from __future__ import annotations

import json
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import handrail as hr
from handrail.futures import result_now
from handrail.records import describe_time
from handrail.stores.sqlite import SqliteStore
from tests.handrail_server.console.desk import (
    HARM,
    LARGE,
    LOST,
    QUOTA,
    RESTART,
    RESTART_HARM,
    SLOW,
    TICKET,
    Desk,
    open_desk,
)
from tests.handrail_server.console.pages import NARROW, WIDE, go, open_page, screens
from tests.handrail_server.console.pictures import (
    FOLDER,
    FONT,
    PICTURES,
    difference,
    has_font,
)
from tests.handrail_server.console.tools import HOSTILE
from tests.support.effort import IS_LONG

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
AXE = "axe-core@4.14.1"
AXE_RUN = """async () => {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
    const found = await axe.run({runOnly: tags, resultTypes: ['violations']});
    return found.violations
        .filter(each => ['serious', 'critical'].includes(each.impact))
        .map(each => [each.id, each.nodes[0].html.slice(0, 160)]);
}"""
LOOK = """() => ({
    wide: document.documentElement.scrollWidth > innerWidth,
    ground: getComputedStyle(document.documentElement).backgroundColor,
    language: document.documentElement.lang,
})"""
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}


LOOKS = list(product(("light", "dark"), ("en", "zh"), (WIDE, NARROW)))
if not IS_LONG:  # each two of the three together, in half as many
    LOOKS = [LOOKS[0], LOOKS[3], LOOKS[5], LOOKS[6]]


def test_every_screen_opens_in_every_look(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk) as page:
        for name, address in screens(desk.runs).items():
            go(page, address)
            for theme, language, size in LOOKS:
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size(size)
                page.locator(".corner select").first.select_option(language)
                seen = page.evaluate(LOOK)
                assert not seen["wide"], (name, size)
                assert seen["ground"] == GROUNDS[theme], (name, theme)
                assert seen["language"].startswith(language), (name, language)


@pytest.fixture(scope="module")
def axe() -> str:
    """The program of axe-core, installed once into `build`."""
    folder = ROOT / "build/axe"
    program = folder / "node_modules/axe-core/axe.min.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save"]
        try:
            subprocess.run(
                [*command, "--prefix", str(folder), AXE],
                check=True,
                capture_output=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"axe-core could not be installed: {error}")
    return program.read_text(encoding="utf-8")


def test_no_screen_has_a_serious_fault_of_accessibility(
    browser: Any, desk: Desk, axe: str
) -> None:
    faults = []
    with open_page(browser, desk) as page:
        page.evaluate(
            axe
        )  # by the test, not by the page: no script of a page may do so
        for number, (name, address) in enumerate(screens(desk.runs).items()):
            go(page, address)
            looks = [("light", WIDE), ("dark", NARROW)]
            for theme, size in looks if IS_LONG else [looks[number % 2]]:
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size(size)
                faults += [(name, theme, *each) for each in page.evaluate(AXE_RUN)]
    assert faults == []


def test_a_call_is_approved_by_keyboard_alone(browser: Any, desk: Desk) -> None:
    run = desk.carry_out(RESTART)
    with open_page(browser, desk) as page:
        page.keyboard.press("g")
        page.keyboard.press("a")
        rows = page.get_by_test_id("approvals")
        rows.wait_for()
        _focus(page, rows)
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        card = page.get_by_test_id("approval")
        card.wait_for()
        assert "search" in card.inner_text()
        page.keyboard.press("a")
        card.get_by_text("Press Enter to approve").wait_for()
        assert desk.get(f"/runs/{run}")["run"]["status"] == "waiting"  # not yet
        page.keyboard.press("Enter")
        card.get_by_text("Approved.").wait_for()
    end = desk.wait_for_end(run)
    assert (end["status"], end["final_text"]) == ("done", "search was restarted.")


def _focus(page: Any, rows: Any) -> None:
    """Press Tab until the focus is in a list."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if rows.evaluate("element => element.contains(document.activeElement)"):
            return
    raise AssertionError("Tab never reached the list")


def test_an_edit_is_shown_as_a_diff_and_is_what_runs(browser: Any, desk: Desk) -> None:
    run = desk.carry_out(RESTART)
    with open_page(browser, desk, f"#/approvals?run={run}") as page:
        card = page.get_by_test_id("approval")
        card.wait_for()
        page.keyboard.press("e")
        page.locator("#field-reason").fill("after a look at the pool")
        assert card.locator("del").all_inner_texts() == ["it", "is", "stuck"]
        card.get_by_role("button", name="Approve the edit").click()
        card.get_by_text("Approved with your edit.").wait_for()
    desk.wait_for_end(run)
    call = desk.get(f"/runs/{run}")["calls"][0]
    assert call["arguments"]["final"]["reason"] == "after a look at the pool"
    assert "after a look at the pool" in call["result"]["shown"]


def test_a_denial_takes_a_reason_that_the_model_reads(browser: Any, desk: Desk) -> None:
    run = desk.carry_out(RESTART)
    with open_page(browser, desk, f"#/approvals?run={run}") as page:
        page.get_by_test_id("approval").wait_for()
        page.keyboard.press("d")
        page.keyboard.type("not in office hours")
        page.keyboard.press("Enter")
        page.get_by_text("Denied.").wait_for()
    desk.wait_for_end(run)
    call = desk.get(f"/runs/{run}")["calls"][0]
    assert call["status"] == "denied"
    assert "not in office hours" in call["result"]["shown"]


def test_arguments_are_shown_to_the_last_digit(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk, f"#/approvals?run={desk.runs[QUOTA]}") as page:
        page.get_by_role("cell", name=str(LARGE), exact=True).wait_for()
        page.get_by_role("button", name="Edit").click()
        assert page.locator("#field-max_bytes").input_value() == str(LARGE)


def test_who_answers_elsewhere_first_counts(browser: Any, desk: Desk) -> None:
    run = desk.carry_out(RESTART)
    question = next(e for e in desk.get("/approvals")["items"] if e["run"] == run)
    with open_page(browser, desk, f"#/approvals?run={run}") as page:
        approve = page.get_by_role("button", name="Approve")
        approve.wait_for()
        answer = {"verdict": "deny", "digest": question["digest"], "reason": "no"}
        desk.post(f"/approvals/{question['id']}", answer)
        page.get_by_text("This question is closed").wait_for()
        assert approve.count() == 0


def test_no_word_is_taken_on_arguments_that_changed(browser: Any, desk: Desk) -> None:
    run = desk.runs[QUOTA]
    with open_page(browser, desk, f"#/approvals?run={run}") as page:
        page.get_by_role("cell", name=str(LARGE), exact=True).wait_for()

        def answer(route: Any) -> None:
            answered = route.fetch().text()
            route.fulfill(body=answered.replace(str(LARGE), "7").replace('"digest": "', '"digest": "0'))  # fmt: skip

        page.route("**/api/v1/approvals", answer)
        desk.carry_out(TICKET)  # an event: the page reads its questions again
        page.get_by_text("The call changed while you were reading").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
        assert page.get_by_role("cell", name=str(LARGE), exact=True).count() == 1


def test_what_others_wrote_stays_text(browser: Any, desk: Desk) -> None:
    run = desk.runs[HARM]
    view = f"#/runs/{run}?view="
    asks = f"#/approvals?run={desk.runs[RESTART_HARM]}"
    addresses = [
        "#/runs", f"#/runs/{run}", f"#/runs/{run}?call=1.0", f"{view}chat", f"{view}debug",
        f"{view}wire", f"{view}audit", f"{view}prompt", asks, "#/ledger", "#/audit", "#/tools/read_page",
    ]  # fmt: skip
    with open_page(browser, desk) as page:
        for address in addresses:
            go(page, address)
            assert page.locator("main img, main script, main iframe").count() == 0
            assert page.evaluate("window.hurt") is None
        go(page, f"{view}chat")
        assert "<script>window.hurt = 1</script>" in page.locator("main").inner_text()
        assert page.locator(".unseen", has_text="U+202E").count() > 0


def test_what_is_copied_is_plain_text(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk, f"#/runs/{desk.runs[SLOW]}?call=2.0") as page:
        page.get_by_role("button", name="Copy: The model wrote").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "{'service': 'api-gateway', 'tail_lines': 5,}"


def test_what_happens_is_seen_without_a_reload(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk) as page:
        page.get_by_test_id("runs").wait_for()
        page.evaluate("window.same = true")
        run = desk.start(RESTART)
        page.locator(f'a[href="#/runs/{run}"]').wait_for()
        go(page, f"#/runs/{run}")
        page.get_by_text("1 call waits for a person").wait_for()
        question = next(e for e in desk.get("/approvals")["items"] if e["run"] == run)
        approval = {"verdict": "approve", "digest": question["digest"]}
        desk.post(f"/approvals/{question['id']}", approval)
        page.locator(".head .status", has_text="done").wait_for()
        assert page.evaluate("window.same")


def test_what_a_run_of_workers_waits_for_is_seen(browser: Any, tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        place = tmp_path / "desk.db"
        with hr.SyncRuntime([], store=f"sqlite:///{place}") as client:
            client.submit("Hello?", run_id="r", queue="mail")
        with SqliteStore(place) as store:
            result_now(store.take_segment("r", 1, after_death=False))
            why = f"its model is away: {HOSTILE}"
            away = result_now(
                store.finish_segment("r", 1, wait_s=60.0, why=why, model_turn=1)
            )
            assert away is not None
            told = result_now(store.list_submitted(["r"]))["r"]
        note = f"not before {describe_time(told.wake_at)}: its model is away"
        with open_page(browser, desk) as page:
            page.locator('a[href="#/runs/r"]', has_text=note).wait_for()
            go(page, "#/runs/r")
            page.locator(".head", has_text=f"Waits in queue mail: {note}").wait_for()


def test_a_run_is_started_and_found_again(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk) as page:
        page.get_by_label("Start a run").fill(TICKET)
        page.keyboard.press("Enter")
        page.get_by_test_id("timeline").wait_for()
        run = page.url.rpartition("/")[2]
        desk.wait_for_end(run)
        page.keyboard.press("2")
        page.get_by_text("The ticket is created.").wait_for()
        page.keyboard.press("Escape")
        page.get_by_test_id("runs").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("about the pool")
        page.locator(f'a[href="#/runs/{run}"]').wait_for()
        page.wait_for_url("**q=about*")


def test_a_list_draws_only_the_rows_in_sight(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk) as page:

        def answer(route: Any) -> None:
            answered = route.fetch().json()
            first = answered["items"][0]
            many = [{**first, "id": f"r_{n}", "question": f"question {n}"} for n in range(2000)]  # fmt: skip
            route.fulfill(body=json.dumps({"items": many, "next": None}))

        page.route("**/api/v1/runs?*", answer)
        page.reload()
        rows = page.get_by_test_id("runs")
        rows.wait_for()
        assert rows.locator("li").count() < 100
        _focus(page, rows)
        page.keyboard.press("End")
        focused = page.locator(":focus")
        assert "question 1999" in focused.inner_text()
        page.mouse.move(700, 500)
        page.mouse.wheel(0, -100_000)
        page.get_by_text("question 3", exact=True).wait_for()
        assert "question 1999" in page.locator(":focus").inner_text()  # never lost


def test_a_token_is_traded_for_a_cookie(browser: Any, tmp_path: Path) -> None:
    with open_desk(tmp_path, "--token", "let-me-in-please-1") as guarded:
        context = browser.new_context()
        page = context.new_page()
        page.goto(guarded.url)
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_role("alert").wait_for()
        page.goto("about:blank")
        page.goto(f"{guarded.url}#token=let-me-in-please-1")
        page.locator("main#main").wait_for()
        assert "let-me-in" not in page.url
        assert page.evaluate("document.cookie") == ""
        page.reload()
        page.locator("main#main").wait_for()
        context.close()


def test_no_answer_lets_the_page_load_anything_from_elsewhere(desk: Desk) -> None:
    headers = desk.headers_of("")
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_a_write_in_doubt_is_marked_at_its_run_and_counted_at_the_ledger(
    browser: Any, tmp_path: Path
) -> None:
    with open_desk(tmp_path) as desk:
        desk.carry_out(TICKET)
        desk.carry_out(LOST)
        [write] = desk.get("/ledger?state=in_doubt")["items"]
        with open_page(browser, desk, "#/runs") as page:
            page.get_by_test_id("doubt-count").get_by_text("1", exact=True).wait_for()
            rows = page.get_by_test_id("runs").inner_text()
            assert rows.count("1 in doubt") == 1
            assert rows.index(LOST) < rows.index("1 in doubt") < rows.index(TICKET)
            desk.post(f"/ledger/{write['id']}", {"outcome": "done"})
            page.get_by_test_id("doubt-count").wait_for(state="detached")


def test_a_deep_path_leads_to_its_screen(browser: Any, desk: Desk) -> None:
    with open_page(browser, desk, f"runs/{desk.runs[SLOW]}?view=chat") as page:
        page.locator("h1", has_text=SLOW).wait_for()
        assert "#/runs/" in page.url


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_the_page_shows(
    browser: Any, desk: Desk, name: str
) -> None:
    """`python -m tests.handrail_server.console.pictures` takes them again."""
    kept = (FOLDER / name).read_bytes()
    assert len(kept) < 100_000
    if not has_font(FONT):
        pytest.skip(f"the pictures were taken with {FONT}, and other fonts break lines")
    assert difference(browser, kept, PICTURES[name](browser, desk)) < 0.02


def test_every_hostile_word_is_among_those_shown(desk: Desk) -> None:
    """What the other test looks for is there: the store holds the text unchanged."""
    call = desk.get(f"/runs/{desk.runs[HARM]}")["calls"][0]
    assert call["result"]["raw"] == HOSTILE
