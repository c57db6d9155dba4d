"""Wikipedia by the MediaWiki action API, and the stand-in by the shapes of the manual."""

import json
import re

import httpx2
import pytest

import handrail as hr
from handrail.testing import Fault
from handrail.testing.checklist import check
from handrail.testing.loopback import Answer, Loopback
from handrail_toolbox.wikipedia import Wikipedia
from stand_ins.mediawiki import MediaWiki, WikiPage


@pytest.fixture
def wiki():
    with MediaWiki() as wiki:
        yield wiki


def called(drive, wiki, tool, **arguments):
    return drive(Wikipedia(api=wiki.api)).call(tool, arguments)


def test_a_search_gives_titles_and_plain_summaries(drive, wiki):
    found = called(
        drive, wiki, "search_wikipedia", query="Kipchoge marathon", limit=1
    ).value["found"]
    assert [(page["title"], page["words"]) for page in found] == [
        ("Eliud Kipchoge", 103)
    ]
    assert "<" not in found[0]["summary"] and "Olympic marathon" in found[0]["summary"]


def test_a_page_is_read_beginning_first_then_by_section(drive, wiki):
    lead = called(drive, wiki, "read_wikipedia", title="the_Moon").value
    assert lead == {
        "title": "Moon", "url": f"{wiki.url}/en/wiki/Moon",
        "summary": "The Moon is the only natural satellite of the Earth.", "sections": ["Orbit", "Distance", "Surface"],
    }  # fmt: skip
    section = called(
        drive, wiki, "read_wikipedia", title="Moon", section="distance"
    ).value
    assert "356,400 km" in section["text"] and "far side" not in section["text"]


def test_a_section_holds_the_sections_below_it_and_no_others(drive, wiki):
    text = called(drive, wiki, "read_wikipedia", title="Moon", section="Orbit").value[
        "text"
    ]
    assert "27.3 days" in text and "\n\nDistance\n" in text and "1959" not in text


def test_another_language_is_another_edition(drive, wiki):
    text = called(
        drive, wiki, "read_wikipedia", title="月亮", section="距离", language="zh"
    ).value["text"]
    assert "356,400公里" in text


def test_a_title_with_several_meanings_says_so(drive, wiki):
    lead = called(
        drive, wiki, "read_wikipedia", title="Kipchoge (disambiguation)"
    ).value
    assert "several meanings" in lead["summary"] and "Kipchoge Keino" in lead["summary"]


@pytest.mark.parametrize(("tool", "arguments", "code", "advice"), [
    ("read_wikipedia", {"title": "Mooon"}, "PAGE_NOT_FOUND", "search_wikipedia"),
    ("read_wikipedia", {"title": "a<b>"}, "PAGE_NOT_FOUND", "search_wikipedia"),
    ("read_wikipedia", {"title": "Moon|Marathon"}, "PAGE_NOT_FOUND", "search_wikipedia"),
    ("read_wikipedia", {"title": "Moon", "section": "Distances"}, "SECTION_NOT_FOUND", '"Distance"'),
    ("read_wikipedia", {"title": "Moon", "section": "Cheese"}, "SECTION_NOT_FOUND", '"Orbit", "Distance", "Surface"'),
    ("read_wikipedia", {"title": "Moon", "language": "fr"}, "LANGUAGE_NOT_FOUND", "leave `language` out"),
    ("read_wikipedia", {"title": "Moon", "language": "en.evil.example/"}, "INVALID_ARGUMENTS", "language"),
])  # fmt: skip
def test_what_is_not_there_says_what_is(drive, wiki, tool, arguments, code, advice):
    failure = called(drive, wiki, tool, **arguments).failure
    assert (failure.code, failure.retryable) == (code, False)
    assert advice in failure.suggestion


@pytest.mark.parametrize(("fault", "code"), [
    (Fault(429, "slow down", headers={"Retry-After": "0"}), "RATE_LIMITED"),
    (Fault(503, "<h1>Our servers</h1>", headers={"Retry-After": "0"}), "UNAVAILABLE"),
    (Fault(200, json.dumps({"error": {"code": "maxlag", "info": "Waiting"}}), headers={"Retry-After": "0"}),
     "RATE_LIMITED"),
])  # fmt: skip
def test_a_wiki_that_asks_to_wait_is_asked_again_then_told(drive, fault, code):
    with MediaWiki(faults=[fault]) as wiki:
        assert called(drive, wiki, "read_wikipedia", title="Moon").attempts == 2
    with MediaWiki(faults=[fault] * 3) as wiki:
        failure = called(drive, wiki, "read_wikipedia", title="Moon").failure
    assert (failure.code, failure.retryable) == (code, True)


def test_a_lagging_wiki_is_left_alone_for_as_long_as_it_says():
    with MediaWiki(lag_s=8) as wiki, httpx2.Client() as client:
        tool = Wikipedia(api=wiki.api)["read_wikipedia"]
        tool.client = client
        client.headers["user-agent"] = "handrail"
        with pytest.raises(hr.ToolError) as raised:
            tool.ask(None, lambda: 5.0, titles="Moon")
    assert (raised.value.failure.code, raised.value.retry_after_s) == (
        "RATE_LIMITED",
        5.0,
    )


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b"{}", b'{"error": {"code": "internal_api_error"}}', b"\xff"],
)
def test_an_answer_that_is_none_is_a_sentence(drive, body):
    with Loopback(lambda asked: Answer(body=body)) as server:
        failure = (
            drive(Wikipedia(api=server.url))
            .call("read_wikipedia", {"title": "Moon"})
            .failure
        )
    assert failure.code == "REQUEST_REFUSED"


def test_requests_name_who_asks_and_how_patient_they_are(drive, wiki):
    drive(Wikipedia(contact="ops@example.org", api=wiki.api)).call(
        "read_wikipedia", {"title": "Moon"}
    )
    asked = wiki.asked[0]
    assert re.fullmatch(
        r"handrail/\S+ \(ops@example\.org\) httpx2/\S+", asked.headers["user-agent"]
    )
    assert asked.query["maxlag"] == "5"


def test_one_client_serves_all_calls_of_a_runtime(drive, wiki):
    tools = Wikipedia(api=wiki.api)
    driver = drive(tools)
    clients = set()
    for _ in range(2):
        driver.call("read_wikipedia", {"title": "Moon"})
        clients.add(id(tools["read_wikipedia"].client))
    driver.close()
    assert len(clients) == 1 and tools["read_wikipedia"].client.is_closed


def test_two_runtimes_share_one_tool_and_the_first_to_close_leaves_it_open(drive, wiki):
    tools = Wikipedia(api=wiki.api)
    one, other = drive(tools), drive(tools)
    for driver in (one, other):
        assert driver.call("read_wikipedia", {"title": "Moon"}).ok
    one.close()
    assert other.call("read_wikipedia", {"title": "Moon"}).ok


def test_a_language_that_is_no_code_is_told_when_it_is_made():
    with pytest.raises(hr.ConfigError, match="evil"):
        Wikipedia("evil.example/")


def test_it_declares_what_it_does():
    assert (hr.lint(Wikipedia()).findings, check(Wikipedia()).missing) == ([], [])


# -- the stand-in ------------------------------------------------------------------------------------------------------


def asked(wiki, **query):
    place = wiki.api.format(language="en")
    return httpx2.get(
        place,
        params={"format": "json", **query},
        headers={"user-agent": "test/1 (a@example.org)"},
    )


def test_a_search_has_the_shape_of_the_manual(wiki):
    """API:Search, the sample response."""
    told = asked(
        wiki, action="query", list="search", srsearch="kipchoge", srlimit=1
    ).json()
    (hit,) = told["query"]["search"]
    assert set(hit) == {
        "ns",
        "title",
        "pageid",
        "size",
        "wordcount",
        "snippet",
        "timestamp",
    }
    assert (
        told["query"]["searchinfo"] == {"totalhits": 2} and told["batchcomplete"] == ""
    )
    assert told["continue"] == {"sroffset": 1, "continue": "-||"}
    assert '<span class="searchmatch">Kipchoge</span>' in hit["snippet"]


def test_pages_have_the_shapes_of_both_formats(wiki):
    """API:JSON version 2: pages as a list, booleans as such."""
    common = {
        "action": "query",
        "prop": "extracts",
        "exintro": 1,
        "explaintext": 1,
        "redirects": 1,
    }
    first = asked(wiki, titles="the Moon", **common).json()["query"]
    assert first["redirects"] == [{"from": "The Moon", "to": "Moon"}]
    assert first["normalized"] == [
        {"fromencoded": False, "from": "the Moon", "to": "The Moon"}
    ]
    assert list(first["pages"]) == [str(first["pages"]["1002"]["pageid"])]
    assert (
        first["pages"]["1002"]["extract"]
        == "The Moon is the only natural satellite of the Earth."
    )
    second = asked(wiki, titles="Nowhere", formatversion=2, **common).json()["query"][
        "pages"
    ]
    assert second == [{"ns": 0, "title": "Nowhere", "missing": True}]


def test_a_lag_is_an_error_with_status_200(wiki):
    """Manual:Maxlag parameter."""
    wiki.lag_s = 7.5
    answer = asked(wiki, action="query", maxlag=5)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, "maxlag")
    assert answer.json()["error"]["lag"] == 7.5
    assert (
        answer.headers["retry-after"] == "5" and answer.headers["x-database-lag"] == "8"
    )
    assert asked(wiki, action="query", maxlag=60).json() == {"batchcomplete": ""}


@pytest.mark.parametrize(("query", "code"), [
    ({"action": "edit"}, "badvalue"),
    ({"action": "query", "list": "search"}, "missingparam"),
])  # fmt: skip
def test_a_request_that_is_wrong_gets_a_code_and_a_header(wiki, query, code):
    answer = asked(wiki, **query)
    assert (
        answer.json()["error"]["code"] == answer.headers["mediawiki-api-error"] == code
    )


def test_a_client_without_a_name_is_sent_away(wiki):
    """The User-Agent policy."""
    answer = httpx2.get(
        wiki.api.format(language="en"), headers={"user-agent": "python-httpx2/2.16"}
    )
    assert (answer.status_code, "user-agent" in answer.text) == (403, True)


def test_a_wiki_of_one_s_own_pages(drive):
    with MediaWiki([WikiPage("Handrail", "A rail.\n\n== Use ==\nHold on.")]) as wiki:
        assert (
            called(
                drive, wiki, "read_wikipedia", title="Handrail", section="Use"
            ).value["text"]
            == "Hold on."
        )


def test_a_search_without_a_hit_is_a_success_with_a_note(drive, wiki):
    result = called(drive, wiki, "search_wikipedia", query="xyzzy")
    assert (result.ok, result.value["found"]) == (True, [])
    assert "fewer" in result.value["note"]
