"""Web search by Tavily's API: summaries first, the full text of a result by its id.

    runtime = hr.Runtime(WebSearch())                            # the key is in TAVILY_API_KEY

Rule 1: only what a search has found can be read, by an id of ours. A page that tells the model to fetch another
        address, with what it knows in it, reaches nobody.
Rule 2: the key goes into one header and nowhere else.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import httpx2
from pydantic import Field
from pydantic_core import from_json

from handrail.context import Context
from handrail.errors import ConfigError, Json, ToolError
from handrail.network.connections import make_client
from handrail.tools.settings import Limits
from handrail.tools.toolset import Toolset
from handrail_toolbox.fetching import USER_AGENT, HttpTool, RemainingS, check_status

BASE_URL = "https://api.tavily.com"
KEY_VARIABLE = "TAVILY_API_KEY"
MOST_QUERY_CHARACTERS = 400
"""Tavily refuses longer ones."""
SUMMARY_CHARACTERS = 500
_MOST_KNOWN = 1000

_REFUSALS: Mapping[int, tuple[str, str]] = {
    400: ("REQUEST_REFUSED", "The web search did not take the query"),
    401: ("SEARCH_NOT_SET_UP", "The web search refused its key"),
    403: ("SEARCH_NOT_SET_UP", "The web search refused the request"),
    432: ("QUOTA_USED_UP", "The quota of the web search is used up"),
    433: ("QUOTA_USED_UP", "The budget of the web search is used up"),
}
"""What Tavily's statuses mean, beside 429 and 5xx: code and sentence."""


class WebResult(TypedDict):
    """One page that a search found."""

    id: str
    title: str
    url: str
    summary: str
    score: float


class WebResults(TypedDict):
    """What a search found, best first; `note` says what else to try when that is nothing."""

    found: list[WebResult]
    note: NotRequired[str]


class WebText(TypedDict):
    """The text of one page."""

    title: str
    url: str
    text: str


class WebSearch(Toolset):
    """Two tools: `search_web` and `read_web_result`.

    Args:
        api_key: Tavily's key; by default what TAVILY_API_KEY holds.
        base_url: Where the API is.
        include_domains: Only pages of these are found, such as `example.org`.
        exclude_domains: Pages of these are not.

    Raises:
        ConfigError: There is no key.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str = BASE_URL,
        include_domains: Sequence[str] = (),
        exclude_domains: Sequence[str] = (),
    ) -> None:
        key = api_key or os.environ.get(KEY_VARIABLE, "")
        if not key.strip():
            raise ConfigError(
                f"web search needs a key of Tavily: set {KEY_VARIABLE}, or pass `api_key`"
            )
        if isinstance(include_domains, str) or isinstance(exclude_domains, str):
            raise ConfigError(
                '`include_domains` and `exclude_domains` take lists: ["example.org"]'
            )
        domains: dict[str, Json] = {
            "include_domains": [*include_domains],
            "exclude_domains": [*exclude_domains],
        }
        account = _Account(
            key.strip(),
            base_url.rstrip("/"),
            {name: each for name, each in domains.items() if each},
        )
        super().__init__([SearchWeb(account), ReadWebResult(account)])


class _Account:
    """Who searches, within what, and the results that were found lately."""

    def __init__(self, key: str, base_url: str, domains: dict[str, Json]) -> None:
        self.key = key
        self.base_url = base_url
        self.domains = domains
        self._results: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._lock = Lock()

    def remember(self, title: str, url: str) -> str:
        """Keep a result; return its id, the same for the same address."""
        result_id = sha256(url.encode()).hexdigest()[:8]
        with self._lock:
            self._results[result_id] = title, url
            self._results.move_to_end(result_id)
            while len(self._results) > _MOST_KNOWN:
                self._results.popitem(last=False)
        return result_id

    def find(self, result_id: str) -> tuple[str, str] | None:
        """Return title and address of a result."""
        return self._results.get(result_id.strip())

    def __repr__(self) -> str:
        return f"<_Account at {self.base_url}>"


class _OverTavily(HttpTool):
    effect = "read"
    timeout_s = 45.0
    limits = Limits(attempt_timeout_s=20.0)

    def __init__(self, account: _Account) -> None:
        self.account = account
        super().__init__()

    def new_client(self) -> httpx2.Client:
        """See `HttpTool.new_client`."""
        return make_client(
            headers={
                "user-agent": USER_AGENT,
                "authorization": f"Bearer {self.account.key}",
            }
        )

    def ask(
        self, path: str, remaining_s: RemainingS, body: Mapping[str, Json]
    ) -> dict[str, Any]:
        """Return what the API answers.

        Raises:
            ToolError: It is busy or down, refuses the key or the query, or answers something else.
        """
        answer = self.fetch(
            "POST",
            self.account.base_url + path,
            remaining_s,
            json=dict(body),
        )
        check_status(answer, "The web search")
        try:
            document = from_json(answer.body)
        except ValueError:
            document = None
        if answer.status == 200 and isinstance(document, dict):
            return document
        code, sentence = _REFUSALS.get(
            answer.status, ("REQUEST_REFUSED", "The web search gave no result")
        )
        if answer.status == 400:
            advice = "Ask for something else."
        else:
            advice = "Go on without it, and tell the user so."
        raise ToolError(
            code,
            f"{sentence}{_reason(document, self.account.key)}.",
            suggestion=advice,
        )


def _reason(document: Any, key: str) -> str:
    """Return Tavily's own words (`{"detail": {"error": ...}}`), should they not quote the key."""
    if isinstance(document, dict):
        detail = document.get("detail")
    else:
        detail = None
    if isinstance(detail, dict):
        error = detail.get("error")
    else:
        error = None
    if isinstance(error, str) and key not in error:
        return f": {error[:200].rstrip('. ')}"
    return ""


class SearchWeb(_OverTavily):
    """Search the web and get a summary of each result."""

    name = "search_web"
    aliases = ("搜索", "上网搜", "网页搜索", "查一下", "新闻")

    def run(
        self,
        query: Annotated[str, Field(min_length=1, max_length=MOST_QUERY_CHARACTERS)],
        context: Context[Any],
        topic: Literal["general", "news", "finance"] = "general",
        time_range: Literal["day", "week", "month", "year"] | None = None,
        limit: Annotated[int, Field(ge=1, le=10)] = 5,
    ) -> WebResults:
        """Search the web and get a summary of each page. Use it for what is recent or stands in no encyclopedia; not
        for arithmetic, nor for what is known for certain.

        Args:
            query: What to find, in a few words, such as "marathon world record 2025".
            topic: Kind of pages: general, news or finance.
            time_range: How old pages may be; any age if left out.
            limit: How many results are listed at most.

        Returns:
            Results, best first: `summary` of what fits, `url` to cite, `score` from 0 to 1, `id` for read_web_result.
            Where none is `find`, a `note` says what else to try.
        """
        body: dict[str, Json] = {
            "query": query,
            "topic": topic,
            "max_results": limit,
            **self.account.domains,
        }
        if time_range:
            body["time_range"] = time_range
        hits = self.ask("/search", context.remaining_s, body).get("results")
        if not isinstance(hits, list) or not hits:
            return WebResults(
                found=[],
                note="No page matches. Use fewer or other words, or leave `time_range` out.",
            )
        return WebResults(
            found=[
                self._as_result(hit)
                for hit in hits[:limit]
                if isinstance(hit, dict) and hit.get("url")
            ]
        )

    def _as_result(self, hit: Mapping[str, Any]) -> WebResult:
        title = str(hit.get("title") or hit["url"])[:200]
        url = str(hit["url"])
        summary = _trim(str(hit.get("content") or ""))
        score = round(float(hit.get("score") or 0), 3)
        return WebResult(
            id=self.account.remember(title, url),
            title=title,
            url=url,
            summary=summary,
            score=score,
        )


class ReadWebResult(_OverTavily):
    """Read the full text of a page that a search found."""

    name = "read_web_result"
    aliases = ("读网页", "打开网页", "全文")

    def run(self, id: str, context: Context[Any]) -> WebText:
        """Read the full text of one page that search_web found. Use it when a summary is not enough; not for addresses
        from elsewhere.

        Args:
            id: Id of the result, as search_web gave it, such as "3f2a9c01".
        """
        result = self.account.find(id)
        if result is None:
            raise ToolError(
                "RESULT_NOT_FOUND",
                f"There is no result `{id[:40]}` any more.",
                suggestion="Call search_web again and use an `id` of its results.",
            )
        title, url = result
        document = self.ask(
            "/extract", context.remaining_s, {"urls": [url], "format": "markdown"}
        )
        texts = [
            each.get("raw_content")
            for each in document.get("results", ())
            if isinstance(each, dict)
        ]
        if not texts or not isinstance(texts[0], str):
            raise ToolError(
                "PAGE_UNREADABLE",
                f"The page `{title}` could not be read.",
                suggestion="Use its summary, or read another result.",
            )
        return WebText(title=title, url=url, text=texts[0])


def _trim(text: str) -> str:
    """Return a summary of bounded length, cut after a word."""
    text = " ".join(text.split())
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    cut = text[:SUMMARY_CHARACTERS]
    return (cut.rpartition(" ")[0] or cut) + " ..."
