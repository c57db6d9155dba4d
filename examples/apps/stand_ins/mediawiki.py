"""A wiki on 127.0.0.1 that speaks the part of the MediaWiki action API that reading needs.

    with MediaWiki() as wiki:
        runtime = hr.Runtime(Wikipedia(api=wiki.api))

`action=query` with `list=search`, and with `prop=extracts|info|pageprops` for titles, redirects included; formats 1 and
2; `maxlag`. Shapes are those of the manual (API:Search, API:Query, Extension:TextExtracts, Manual:Maxlag parameter).
The pages are of our own words, with figures that can be looked up.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from handrail.errors import Json
from handrail.testing import Fault
from handrail.testing.loopback import Answer, Loopback, ReceivedRequest


class WikiPage(Struct, frozen=True):
    """One page: its text with `== headings ==`, other titles that lead to it, and its edition."""

    title: str
    text: str
    redirects: Sequence[str] = ()
    language: str = "en"
    disambiguation: bool = False


PAGES = (
    WikiPage(
        "Eliud Kipchoge",
        """Eliud Kipchoge (born 5 November 1984) is a runner from Kenya who won the Olympic marathon in 2016 and again
in the Games of 2020.

== Career ==
He began on the track, over 5000 metres, and turned to the road in 2012.

=== Marathon ===
In Berlin on 25 September 2022 he ran a marathon in 2:01:09 (2 hours, 1 minute and 9 seconds), the fastest ever recorded
until October 2023. His run of 1:59:40 in Vienna in 2019, behind changing pacemakers, does not count as a record.

== Training ==
He trains at Kaptagat, at a height of about 2,400 metres.""",
        redirects=("Kipchoge",),
    ),
    WikiPage(
        "Marathon",
        """The marathon is a foot race over 42.195 kilometres (26 miles 385 yards).

== Distance ==
The distance was first run at the Games of London in 1908 and fixed in 1921.

== Pace ==
The pace of a runner is told in minutes per kilometre. The average speed is the distance divided by the time.""",
        redirects=("Marathon race",),
    ),
    WikiPage(
        "Moon",
        """The Moon is the only natural satellite of the Earth.

== Orbit ==
It goes round the Earth in 27.3 days, on an orbit that is not quite a circle.

=== Distance ===
On average its centre is 384,400 km from that of the Earth. Over the centuries the distance lies between 356,400 km at
the closest perigee and 406,700 km at the farthest apogee.

== Surface ==
Its far side was first seen in 1959.""",
        redirects=("The Moon", "Luna (moon)"),
    ),
    WikiPage(
        "Kipchoge (disambiguation)",
        "Kipchoge may mean:\nEliud Kipchoge, a marathon runner\nKipchoge Keino, a middle-distance runner",
        disambiguation=True,
    ),
    WikiPage(
        "月球",
        """月球是地球唯一的天然卫星。

== 轨道 ==
月球绕地球一周约需27.3天。

=== 距离 ===
月心与地心的平均距离约为384,400公里；数百年间最近的近地点为356,400公里，最远的远地点为406,700公里。""",
        redirects=("月亮",),
        language="zh",
    ),
    WikiPage(
        "马拉松",
        "马拉松是全程42.195公里的长跑项目。\n\n== 世界纪录 ==\n基普乔格2022年在柏林跑出2小时1分9秒。",
        language="zh",
    ),
)


class MediaWiki(Loopback):
    """A stand-in for Wikipedia, one edition at `/LANGUAGE/w/api.php`.

    Args:
        pages: What there is to read.
        lag_s: How far its databases lag: a request with a smaller `maxlag` is sent away.
    """

    def __init__(
        self,
        pages: Sequence[WikiPage] = PAGES,
        *,
        lag_s: float = 0.0,
        faults: Iterable[Fault | None] = (),
    ) -> None:
        super().__init__(self._answer, faults=faults)
        self.pages = pages
        self.lag_s = lag_s
        self.api = self.url + "/{language}/w/api.php"
        """For `Wikipedia(api=...)`."""

    def _answer(self, asked: ReceivedRequest) -> Answer:
        edition, _, path = asked.path.removeprefix("/").partition("/")
        if path != "w/api.php" or edition not in {page.language for page in self.pages}:
            return Answer(404, body=b"<h1>No wiki found</h1>", headers=_HTML)
        if _is_nobody(asked.headers.get("user-agent", "")):
            body = b"Please set a user-agent and respect our robot policy https://w.wiki/4wJS.\n"
            return Answer(403, body=body)
        if asked.query.get("format") != "json":
            return Answer(
                body=b"<p>This is the HTML representation of the JSON format.</p>",
                headers=_HTML,
            )
        if 0 <= _number(asked.query.get("maxlag"), -1) < self.lag_s:
            return _lagging(self.lag_s)
        if (action := asked.query.get("action", "help")) != "query":
            return _fault("badvalue", f'Unrecognized value for parameter "action": {action}.')
        return _WikiQuery(
            asked.query,
            [page for page in self.pages if page.language == edition],
            self.url,
        ).answer()


_HTML = {"content-type": "text/html; charset=utf-8"}


def _is_nobody(agent: str) -> bool:
    """Whether a User-Agent names no client, which Wikimedia sends away."""
    return not agent or agent.lower().startswith(("python", "curl/", "mozilla/4.0 (compatible;)"))


def _number(text: str | None, otherwise: int) -> int:
    if text and re.fullmatch("-?[0-9]{1,9}", text):
        return int(text)
    return otherwise


def _fault(code: str, info: str, **more: Json) -> Answer:
    docref = "See https://www.mediawiki.org/w/api.php for API usage."
    document: Json = {
        "error": {
            "code": code,
            "info": info,
            **more,
            "docref": docref,
        },
        "servedby": "stand-in",
    }
    return Answer(json=document, headers={"mediawiki-api-error": code})


def _lagging(lag_s: float) -> Answer:
    """Return what a lagging wiki says, with status 200, as the manual has it."""
    fault = _fault(
        "maxlag",
        f"Waiting for stand-in: {lag_s:g} seconds lagged.",
        host="stand-in",
        lag=lag_s,
        type="db",
    )
    return Answer(
        json=fault.json,
        headers={"retry-after": "5", "x-database-lag": f"{lag_s:.0f}", **fault.headers},
    )


class _WikiQuery:
    """One request of `action=query` to one edition."""

    def __init__(self, asked: Mapping[str, str], pages: Sequence[WikiPage], url: str) -> None:
        self.asked = asked
        self.pages = pages
        self.url = url

    def answer(self) -> Answer:
        if self.asked.get("list") == "search":
            return self._search()
        if "titles" in self.asked:
            return Answer(json={"batchcomplete": self._true, "query": self._by_title()})
        return Answer(json={"batchcomplete": self._true})

    @property
    def _second(self) -> bool:
        return self.asked.get("formatversion") in ("2", "latest")

    @property
    def _true(self) -> Json:
        return True if self._second else ""

    def _search(self) -> Answer:
        words = re.findall(r"\w+", self.asked.get("srsearch", "").lower())
        if not words:
            return _fault("missingparam", 'The "srsearch" parameter must be set.')
        hits = sorted(
            (page for page in self.pages if _score(page, words)),
            key=lambda page: -_score(page, words),
        )
        at = _number(self.asked.get("sroffset"), 0)
        most = _number(self.asked.get("srlimit"), 10)
        shown = hits[at : at + min(max(most, 1), 500)]
        rest: dict[str, Json] = {}
        if at + len(shown) < len(hits):
            rest = {"continue": {"sroffset": at + len(shown), "continue": "-||"}}
        hits_found: Json = [self._hit(page, words) for page in shown]
        result: dict[str, Json] = {
            "searchinfo": {"totalhits": len(hits)},
            "search": hits_found,
        }
        return Answer(json={"batchcomplete": self._true, **rest, "query": result})

    def _hit(self, page: WikiPage, words: Sequence[str]) -> dict[str, Json]:
        hit: dict[str, Json] = {"ns": 0, "title": page.title, "pageid": self._id(page)}
        properties: dict[str, Json] = {
            "size": len(page.text.encode()),
            "wordcount": len(page.text.split()),
            "snippet": _snippet(page, words),
            "timestamp": "2026-01-01T00:00:00Z",
        }
        wanted = self.asked.get("srprop", "size|wordcount|timestamp|snippet").split("|")
        return hit | {name: value for name, value in properties.items() if name in wanted}

    def _by_title(self) -> dict[str, Json]:
        requested = self.asked["titles"].split("|")[0].partition("#")[0]
        title = (requested[:1].upper() + requested[1:]).replace("_", " ").strip()
        result: dict[str, Any] = {}
        if title != requested:
            result["normalized"] = [{"fromencoded": False, "from": requested, "to": title}]
        page = self._find_page(title)
        if page and title != page.title and "redirects" in self.asked:
            result["redirects"] = [{"from": title, "to": page.title}]
        elif page and title != page.title:
            page = WikiPage(title, "", language=page.language)
        document = self._page(page) if page else self._missing(title)
        if self._second:
            result["pages"] = [document]
        else:
            result["pages"] = {str(document.get("pageid", -1)): document}
        return result

    def _find_page(self, title: str) -> WikiPage | None:
        """Return the page that has this title, or redirects from it."""
        for page in self.pages:
            if title in (page.title, *page.redirects):
                return page
        return None

    def _missing(self, title: str) -> dict[str, Json]:
        if re.search(r"[\[\]{}<>]", title) or not title:
            reason = "The requested page title contains invalid characters."
            return {"title": title, "invalidreason": reason, "invalid": self._true}
        return {"ns": 0, "title": title, "missing": self._true}

    def _page(self, page: WikiPage) -> dict[str, Json]:
        document: dict[str, Json] = {
            "pageid": self._id(page),
            "ns": 0,
            "title": page.title,
        }
        props = self.asked.get("prop", "").split("|")
        if "extracts" in props:
            document["extract"] = self._extract(page.text)
        if "info" in props:
            document |= {
                "contentmodel": "wikitext",
                "pagelanguage": page.language,
                "length": len(page.text.encode()),
            }
        if "info" in props and "url" in self.asked.get("inprop", ""):
            document["fullurl"] = f"{self.url}/{page.language}/wiki/{quote(page.title.replace(' ', '_'))}"
        if "pageprops" in props and page.disambiguation:
            document["pageprops"] = {"disambiguation": ""}
        return document

    def _extract(self, text: str) -> str:
        """Return a text as TextExtracts does: lines within a paragraph joined, two empty lines before a heading."""
        if "may mean:" not in text:
            text = re.sub(r"(?<=[^\n=])\n(?=[^\n=])", " ", text)
        if "exintro" in self.asked:
            text = re.split(r"\n+==", text, maxsplit=1)[0]
        if "explaintext" not in self.asked:
            return "\n".join(f"<p>{html.escape(each)}</p>" for each in text.split("\n\n"))
        if self.asked.get("exsectionformat", "wiki") == "plain":
            text = re.sub(r"(?m)^=+ (.*?) =+$", r"\1", text)
        return re.sub(r"\n+(=+ )", r"\n\n\n\1", text)

    def _id(self, page: WikiPage) -> int:
        return 1000 + next(n for n, each in enumerate([*self.pages, page]) if each.title == page.title)


def _score(page: WikiPage, words: Sequence[str]) -> int:
    """Return how well a page matches: words in titles count most; a word that is nowhere excludes it, as on a wiki."""
    titles = " ".join((page.title, *page.redirects)).lower()
    text = page.text.lower()
    if not all(word in titles or word in text for word in words):
        return 0
    return sum(10 * (word in titles) + text.count(word) for word in words)


def _snippet(page: WikiPage, words: Sequence[str]) -> str:
    """Return the text around the first word that matches, marked as the search does."""
    text = " ".join(re.sub(r"(?m)^=+ .*? =+$", "", page.text).split())
    at = max(
        0,
        min(
            (text.lower().find(word) for word in words if word in text.lower()),
            default=0,
        )
        - 40,
    )
    escaped = html.escape(text[at : at + 200], quote=True)
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(
        f"({pattern})",
        r'<span class="searchmatch">\1</span>',
        escaped,
        flags=re.IGNORECASE,
    )


__all__ = ["PAGES", "MediaWiki", "WikiPage"]
