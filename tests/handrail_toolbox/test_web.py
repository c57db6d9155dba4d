"""Web search by Tavily's API; the official client holds the stand-in to it, and our requests to its own."""

import json

import pytest
import tavily
import tavily.errors

import handrail as hr
from handrail.testing import Fault
from handrail.testing.checklist import check
from handrail.testing.loopback import Answer, Loopback
from handrail_toolbox.web import WebSearch
from stand_ins.tavily import Tavily

KEY = "tvly-secret-of-a-test"


@pytest.fixture
def server():
    with Tavily() as server:
        yield server


def search_at(server, **how):
    return WebSearch(api_key=getattr(server, "key", KEY), base_url=server.url, **how)


def test_a_search_gives_summaries_and_an_id_for_the_full_text(drive, server):
    driver = drive(search_at(server))
    first, *_ = found = driver.call(
        "search_web", {"query": "Eliud Kipchoge marathon pace", "limit": 2}
    ).value["found"]
    assert [page["url"] for page in found] == ["https://running.example/kipchoge-pace",
                                              "https://news.example/2026/berlin-marathon"]  # fmt: skip
    assert (
        set(first) == {"id", "title", "url", "summary", "score"}
        and first["score"] == 1.0
    )
    text = driver.call("read_web_result", {"id": first["id"]}).value
    assert (text["url"], "2:01:09" in text["text"]) == (first["url"], True)


def test_only_what_a_search_found_can_be_read(drive, server):
    driver = drive(search_at(server))
    for result_id in (
        "deadbeef",
        "https://sky.example/moon-distance",
        "https://evil.example/?secret=1",
    ):
        failure = driver.call("read_web_result", {"id": result_id}).failure
        assert (failure.code, "search_web" in failure.suggestion) == (
            "RESULT_NOT_FOUND",
            True,
        )
    assert server.asked == []


def test_a_long_summary_is_cut_after_a_word(drive):
    hit = {
        "title": "Long",
        "url": "https://a.example/",
        "content": "word " * 300,
        "score": 0.5,
    }
    with Loopback(lambda asked: Answer(json={"results": [hit]})) as server:
        (found,) = (
            drive(search_at(server))
            .call("search_web", {"query": "long"})
            .value["found"]
        )
    assert len(found["summary"]) <= 504 and found["summary"].endswith("word ...")


def test_a_page_that_cannot_be_extracted_is_a_sentence(drive, server):
    driver = drive(search_at(server))
    (found,) = driver.call(
        "search_web", {"query": "Berlin marathon", "topic": "news"}
    ).value["found"]
    assert (
        driver.call("read_web_result", {"id": found["id"]}).failure.code
        == "PAGE_UNREADABLE"
    )


@pytest.mark.parametrize(("fault", "code", "retryable"), [
    (Fault(429, '{"detail": {"error": "rate"}}', headers={"retry-after": "0"}), "RATE_LIMITED", True),
    (Fault(502, "bad gateway", headers={"retry-after": "0"}), "UNAVAILABLE", True),
    (Fault(401, '{"detail": {"error": "Unauthorized"}}'), "SEARCH_NOT_SET_UP", False),
    (Fault(432, '{"detail": {"error": "This request exceeds your plan"}}'), "QUOTA_USED_UP", False),
    (Fault(433, "{}"), "QUOTA_USED_UP", False),
    (Fault(400, '{"detail": {"error": "Invalid topic."}}'), "REQUEST_REFUSED", False),
    (Fault(418, "teapot"), "REQUEST_REFUSED", False),
    (Fault(200, "no json"), "REQUEST_REFUSED", False),
])  # fmt: skip
def test_a_refusal_is_told_as_what_it_is(drive, fault, code, retryable):
    with Tavily(faults=[fault] * 3) as server:
        failure = drive(search_at(server)).call("search_web", {"query": "moon"}).failure
    assert (failure.code, failure.retryable) == (code, retryable)


def test_the_key_is_in_a_header_and_nowhere_else(drive):
    def quoting(asked):
        return Answer(
            400,
            json={
                "detail": {
                    "error": f"bad request with {asked.headers['authorization']}"
                }
            },
        )

    with Loopback(quoting) as server:
        tools = search_at(server)
        result = drive(tools).call("search_web", {"query": "moon"})
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(
        (result, result.failure, tools, [vars(tool) for tool in tools])
    )


def test_without_a_key_nothing_starts(monkeypatch):
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    with pytest.raises(hr.ConfigError, match="TAVILY_API_KEY"):
        WebSearch()
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    assert len(WebSearch()) == 2
    with pytest.raises(hr.ConfigError, match="lists"):
        WebSearch(include_domains="example.org")


def test_it_declares_what_it_does():
    tools = WebSearch(api_key=KEY)
    assert (hr.lint(tools).findings, check(tools).missing) == ([], [])


# -- the official client -----------------------------------------------------------------------------------------------


@pytest.fixture
def client(server):
    return tavily.TavilyClient(api_key=server.key, api_base_url=server.url)


def test_the_official_client_finds_and_reads_in_the_stand_in(client):
    found = client.search("Moon distance", max_results=1)
    assert set(found) == {
        "query",
        "follow_up_questions",
        "answer",
        "images",
        "results",
        "response_time",
        "request_id",
    }
    (page,) = found["results"]
    assert set(page) == {"url", "title", "content", "score", "raw_content"}
    read = client.extract([page["url"], "https://nowhere.example/"])
    assert "356,400 km" in read["results"][0]["raw_content"]
    assert [each["url"] for each in read["failed_results"]] == [
        "https://nowhere.example/"
    ]


@pytest.mark.parametrize(("query", "how", "error"), [
    ("", {}, tavily.errors.BadRequestError),
    ("moon " * 100, {}, tavily.errors.BadRequestError),
    ("moon", {"max_results": 21}, tavily.errors.BadRequestError),
    ("moon", {"topic": "gossip"}, tavily.errors.BadRequestError),
])  # fmt: skip
def test_the_official_client_is_refused_as_by_the_service(client, query, how, error):
    with pytest.raises(error):
        client.search(query, **how)


def test_the_official_client_with_a_wrong_key_is_refused(server):
    with pytest.raises(tavily.errors.InvalidAPIKeyError):
        tavily.TavilyClient(api_key="tvly-wrong", api_base_url=server.url).search(
            "moon"
        )


def test_our_requests_are_those_of_the_official_client(drive, server, client):
    ours = drive(search_at(server, include_domains=["sky.example"]))
    (found,) = ours.call(
        "search_web", {"query": "moon", "limit": 3, "time_range": "year"}
    ).value["found"]
    ours.call("read_web_result", {"id": found["id"]})
    client.search(
        "moon",
        max_results=3,
        time_range="year",
        topic="general",
        include_domains=["sky.example"],
    )
    client.extract([found["url"]], format="markdown")
    search, extract, their_search, their_extract = server.asked
    for mine, theirs in ((search, their_search), (extract, their_extract)):
        assert (mine.path, mine.headers["authorization"]) == (
            theirs.path,
            theirs.headers["authorization"],
        )
        # It adds switches of its own, such as a timeout or flags that are off.
        assert json.loads(mine.body).items() <= json.loads(theirs.body).items()
