"""A web search on 127.0.0.1 that speaks Tavily's `/search` and `/extract`.

    with Tavily() as tavily:
        runtime = hr.Runtime(WebSearch(api_key=tavily.key, base_url=tavily.url))

Shapes are those of the API's reference; the official client is held against it in our tests. The pages are of our own
words, at addresses that lead nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from handrail.errors import Json
from handrail.testing import Fault
from handrail.testing.loopback import Answer, Loopback, ReceivedRequest


class WebPage(Struct, frozen=True):
    """One page of the stand-in's web; one without a text can be found but not read."""

    url: str
    title: str
    summary: str
    text: str = ""
    topic: str = "general"


PAGES = (
    WebPage(
        "https://running.example/kipchoge-pace",
        "What is Eliud Kipchoge's marathon pace?",
        "Over 42.195 km in 2:01:09, Eliud Kipchoge needs about 2 minutes and 52 seconds for each kilometre.",
        "# What is Eliud Kipchoge's marathon pace?\n\nIn Berlin in 2022 Eliud Kipchoge ran 42.195 km in 2:01:09. That "
        "is about 2 minutes and 52 seconds for each kilometre.\n\nFew people keep this pace for 400 metres.",
    ),
    WebPage(
        "https://sky.example/moon-distance",
        "How far is the Moon?",
        "The Moon is 384,400 km away on average; at the closest perigee it is 356,400 km.",
        "# How far is the Moon?\n\nOn average 384,400 km. The closest perigee is at 356,400 km, the farthest apogee at "
        "406,700 km.",
    ),
    WebPage(
        "https://news.example/2026/berlin-marathon",
        "Berlin prepares for its marathon",
        "The city closes its streets for the marathon on Sunday.",
        topic="news",
    ),
)


class Tavily(Loopback):
    """A stand-in for Tavily's API.

    Args:
        pages: What there is to find.

    Attributes:
        key: The one key that it takes.
    """

    def __init__(self, pages: Sequence[WebPage] = PAGES, *, faults: Iterable[Fault | None] = ()) -> None:
        super().__init__(self._answer, faults=faults)
        self.pages = pages
        self.key = "tvly-stand-in-key"

    def _answer(self, asked: ReceivedRequest) -> Answer:
        paths = {"/search": self._search, "/extract": self._extract}
        if asked.path not in paths or asked.method != "POST":
            return Answer(404, json={"detail": "Not Found"})
        if asked.headers.get("authorization") != f"Bearer {self.key}":
            return _refusal(401, "Unauthorized: missing or invalid API key.")
        body = asked.json()
        if not isinstance(body, dict):
            return _refusal(400, "Invalid JSON.")
        return paths[asked.path](body)

    def _search(self, body: Mapping[str, Json]) -> Answer:
        if error := _search_error(body):
            return _refusal(400, error)
        query = str(body["query"])
        most = cast(int, body.get("max_results", 5))
        ranked = self._rank(query, body)
        results: Json = [
            {
                "url": page.url,
                "title": page.title,
                "content": page.summary,
                "score": score,
                "raw_content": page.text if body.get("include_raw_content") else None,
            }
            for score, page in ranked[:most]
            if score
        ]
        common = {
            "query": query,
            "follow_up_questions": None,
            "answer": None,
            "images": [],
            "results": results,
        }
        return Answer(json={**common, "response_time": 0.1, "request_id": _REQUEST_ID})

    def _rank(self, query: str, body: Mapping[str, Json]) -> list[tuple[float, WebPage]]:
        """Return the pages that a request allows with their scores, the best first."""
        words = set(re.findall(r"\w+", query.lower()))
        news_only = body.get("topic") == "news"
        scored = [
            (_score(page, words), page)
            for page in self.pages
            if _is_within(page, body) and (page.topic == "news" or not news_only)
        ]
        return sorted(scored, key=lambda each: -each[0])

    def _extract(self, body: Mapping[str, Json]) -> Answer:
        urls = body.get("urls")
        if isinstance(urls, str):
            urls = [urls]
        if not isinstance(urls, list) or not 1 <= len(urls) <= 20:
            return _refusal(400, "Between 1 and 20 URLs can be extracted at once.")
        texts = {page.url: page.text for page in self.pages if page.text}
        results: Json = [
            {
                "url": url,
                "title": _title(url, self.pages),
                "raw_content": texts[str(url)],
                "images": [],
            }
            for url in urls
            if url in texts
        ]
        failed: Json = [{"url": url, "error": "Failed to fetch url"} for url in urls if url not in texts]
        document = {
            "results": results,
            "failed_results": failed,
            "response_time": 0.1,
            "request_id": _REQUEST_ID,
        }
        return Answer(json=cast(Json, document))


_REQUEST_ID = "00000000-0000-4000-8000-000000000000"


def _refusal(status: int, error: str) -> Answer:
    return Answer(status, json={"detail": {"error": error}})


def _search_error(body: Mapping[str, Json]) -> str:
    """Return what is wrong with a request to search; empty for one that is right."""
    query = body.get("query")
    most = body.get("max_results", 5)
    if not isinstance(query, str) or not query.strip():
        return "Query is missing."
    if len(query) > 400:
        return "Query is too long. Max query length is 400 characters."
    if not isinstance(most, int) or not 0 <= most <= 20:
        return "Max results must be between 0 and 20."
    if body.get("topic", "general") not in ("general", "news", "finance"):
        return "Invalid topic. Must be 'general', 'news' or 'finance'."
    return ""


def _title(url: Json, pages: Sequence[WebPage]) -> str:
    return next((page.title for page in pages if page.url == url), "")


def _score(page: WebPage, words: set[str]) -> float:
    """Return the share of the words that a page has."""
    has = set(re.findall(r"\w+", f"{page.title} {page.summary} {page.text}".lower()))
    if words:
        return round(len(words & has) / len(words), 4)
    return 0.0


def _is_within(page: WebPage, body: Mapping[str, Json]) -> bool:
    host = page.url.split("/")[2]
    wanted = body.get("include_domains") or []
    unwanted = body.get("exclude_domains") or []
    assert isinstance(wanted, list) and isinstance(unwanted, list)
    return (not wanted or host in wanted) and host not in unwanted


__all__ = ["PAGES", "Tavily", "WebPage"]
