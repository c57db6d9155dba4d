"""Wikipedia: search, and read page by page, section by section, by the MediaWiki action API.

    runtime = hr.Runtime(Wikipedia(contact="ops@example.org"))

A page's title is its id: a search gives titles and summaries, reading one gives its lead and the names of its sections,
and reading a section its text. Text comes as plain text from the TextExtracts extension, which leaves tables, boxes and
footnotes out; figures that stand only there are not found.

Wikimedia's rules for clients (API:Etiquette, User-Agent policy) hold: a User-Agent that names the client and whom to
write to, one request at a time, `maxlag`, and waiting as long as `Retry-After` says.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict, cast

import httpx2
from pydantic import Field
from pydantic_core import from_json

from handrail.context import Context
from handrail.errors import ConfigError, ToolError
from handrail.network.connections import make_client
from handrail.parsing.names import nearest
from handrail.tools.settings import Limits
from handrail.tools.toolset import Toolset
from handrail_toolbox.fetching import (
    Answer,
    HttpTool,
    RemainingS,
    check_status,
    rate_limited,
    user_agent,
)

API = "https://{language}.wikipedia.org/w/api.php"
MAXLAG_S = 5
"""What the manual recommends to programs that wait for nobody."""

Language = Annotated[
    str,
    Field(
        pattern="^[a-z]{2,3}(-[a-z]{2,10}){0,2}$",
        description='Code of the edition, such as "en", "zh" or "de".',
    ),
]
_BUSY = {"maxlag", "ratelimited", "readonly"}
_NO_EDITION = {301, 302, 404}
"""How Wikimedia's servers answer at the address of an edition that there is not."""
_TAG = re.compile(r"<[^<>]*>")


class WikiResult(TypedDict):
    """One page that a search found."""

    title: str
    summary: str
    words: int


class WikiResults(TypedDict):
    """What a search found, best first; `note` says what else to try when that is nothing."""

    found: list[WikiResult]
    note: NotRequired[str]


class Lead(TypedDict):
    """A page's beginning, and what else it has."""

    title: str
    url: str
    summary: str
    sections: list[str]


class SectionText(TypedDict):
    """One section of a page, with those below it."""

    title: str
    url: str
    section: str
    text: str


class Wikipedia(Toolset):
    """Two tools: `search_wikipedia` and `read_wikipedia`.

    Args:
        language: The edition that is asked when a call names none.
        contact: An address or page where Wikimedia's operators reach whoever runs this; their policy asks for it.
        api: Where the API is, with `{language}` in it: another wiki, or a stand-in.
    """

    def __init__(
        self, language: str = "en", *, contact: str = "", api: str = API
    ) -> None:
        if not re.fullmatch("[a-z]{2,3}(-[a-z]{2,10}){0,2}", language):
            raise ConfigError(
                f"`language` is a code such as en or zh-yue, not {language!r}"
            )
        site = _Site(language, user_agent(contact), api)
        super().__init__([SearchWikipedia(site), ReadWikipedia(site)])


class _Site:
    """Which wiki is asked, and by whom."""

    def __init__(self, language: str, agent: str, api: str) -> None:
        self.language = language
        self.agent = agent
        self.api = api


class _OverMediaWiki(HttpTool):
    effect = "read"
    timeout_s = 30.0
    limits = Limits(attempt_timeout_s=10.0)
    most_at_once = 1

    def __init__(self, site: _Site) -> None:
        self.site = site
        super().__init__()

    def new_client(self) -> httpx2.Client:
        """See `HttpTool.new_client`."""
        return make_client(headers={"user-agent": self.site.agent})

    def ask(
        self, language: str | None, remaining_s: RemainingS, **parameters: str | int
    ) -> dict[str, Any]:
        """Return what `action=query` answers.

        Raises:
            ToolError: The wiki is busy, down, has no such edition, or answers something else.
        """
        common = {
            "action": "query",
            "format": "json",
            "formatversion": 2,
            "maxlag": MAXLAG_S,
        }
        place = self.site.api.format(language=language or self.site.language)
        answer = self.fetch("GET", place, remaining_s, params={**common, **parameters})
        check_status(answer, "Wikipedia")
        if language and answer.status in _NO_EDITION:
            message = f"There is no Wikipedia in `{language}`."
            raise ToolError(
                "LANGUAGE_NOT_FOUND",
                message,
                suggestion="Use en, or leave `language` out.",
            )
        return _query_result(answer)


def _query_result(answer: Answer) -> dict[str, Any]:
    try:
        document = from_json(answer.body)
    except ValueError:
        document = None
    if answer.status == 200 and isinstance(document, dict):
        fault = document.get("error")
        if isinstance(fault, dict) and fault.get("code") in _BUSY:
            raise rate_limited(answer, "Wikipedia")
        if isinstance(document.get("query"), dict):
            return cast(dict[str, Any], document["query"])
        if isinstance(fault, dict):
            message = f"Wikipedia did not take the request: {str(fault.get('info', fault.get('code')))[:200]}"
            raise ToolError(
                "REQUEST_REFUSED",
                message,
                suggestion="Call again with a plainer query or title.",
            )
        if document.get("batchcomplete"):
            return {}
    raise ToolError(
        "REQUEST_REFUSED",
        f"Wikipedia answered with HTTP {answer.status} and no result.",
        suggestion="Use another source, and tell the user that Wikipedia did not answer.",
    )


class SearchWikipedia(_OverMediaWiki):
    """Search Wikipedia by words and get titles with a summary each."""

    name = "search_wikipedia"
    aliases = ("维基百科", "百科", "搜索百科", "wiki")

    def run(
        self,
        query: Annotated[str, Field(min_length=1, max_length=300)],
        context: Context[Any],
        language: Language | None = None,
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
    ) -> WikiResults:
        """Search Wikipedia for pages about a subject. Use it to find the title of a page before reading it, and not for
        news or opinions.

        Args:
            query: A few words in the language of the edition, such as "Eliud Kipchoge marathon record".
            language: Code of the edition, such as "en" or "zh"; the usual one if left out.
            limit: How many pages are listed at most.

        Returns:
            Pages, best first: `title` to read it by, a `summary` of what matched, its length in `words`. Where none
            is `found`, a `note` says what else to try.
        """
        document = self.ask(
            language,
            context.remaining_s,
            list="search",
            srsearch=query,
            srlimit=limit,
            srprop="snippet|wordcount",
        )
        hits = document.get("search", [])
        if not hits:
            again = document.get("searchinfo", {}).get("suggestion")
            if again:
                advice = f'Search for "{again}".'
            else:
                advice = "Use fewer or other words, or another language."
            return WikiResults(found=[], note=f"No page matches. {advice}")
        results = [
            WikiResult(
                title=str(hit["title"]),
                summary=_plain(str(hit.get("snippet", ""))),
                words=int(hit["wordcount"]),
            )
            for hit in hits
        ]
        return WikiResults(found=results)


class ReadWikipedia(_OverMediaWiki):
    """Read a page of Wikipedia, or one section of it."""

    name = "read_wikipedia"
    aliases = ("维基百科", "读百科", "词条", "条目")

    def run(
        self,
        title: Annotated[str, Field(min_length=1, max_length=255)],
        context: Context[Any],
        section: str | None = None,
        language: Language | None = None,
    ) -> Lead | SectionText:
        """Read a Wikipedia page as plain text: its beginning and the names of its sections, or one section in full.
        Use it for a title that search_wikipedia has found; not for figures of tables and boxes, which are left out.

        Args:
            title: Title of the page, such as "Moon".
            section: Name of a section as it was listed, such as "Distance"; the beginning if left out.
            language: Code of the edition that has the title, such as "en"; the usual one if left out.

        Returns:
            `summary` and `sections` of the page, or the `text` of the section; `url` to cite.
        """
        # no title has one; the API would take what follows it for another title
        if "|" in title:
            raise _no_page(title)
        document = self.ask(
            language,
            context.remaining_s,
            titles=title,
            redirects=1,
            prop="extracts|info|pageprops",
            inprop="url",
            explaintext=1,
            exsectionformat="wiki",
            ppprop="disambiguation",
        )
        page: dict[str, Any] = next(iter(document.get("pages", ())), {"missing": True})
        if page.get("missing") or page.get("invalid") or "extract" not in page:
            raise _no_page(title)
        name = str(page["title"])
        url = str(page.get("fullurl", ""))
        parts = _parts(str(page["extract"]))
        if section:
            return SectionText(
                title=name,
                url=url,
                section=section.strip(),
                text=_section(parts, section, name),
            )
        summary = parts[0][2]
        if "disambiguation" in page.get("pageprops", {}):
            summary = f"This title has several meanings; read one of them instead.\n{page['extract']}"
        return Lead(
            title=name,
            url=url,
            summary=summary,
            sections=[each for _, each, _ in parts[1:]],
        )


def _no_page(title: str) -> ToolError:
    advice = "Find its title with search_wikipedia."
    return ToolError(
        "PAGE_NOT_FOUND", f"Wikipedia has no page `{title}`.", suggestion=advice
    )


def _plain(snippet: str) -> str:
    """Return a snippet's text: markup marks what matched, entities what would be markup."""
    return html.unescape(_TAG.sub("", snippet)).strip()


def _parts(text: str) -> list[tuple[int, str, str]]:
    """Part a page at its headings: depth, name and text of each section, the beginning as one without a name."""
    parts: list[tuple[int, str, list[str]]] = [(1, "", [])]
    for line in text.split("\n"):
        plain = line.strip()
        depth = len(plain) - len(plain.lstrip("="))
        if (
            2 <= depth <= 6
            and plain.endswith("=" * depth)
            and (name := plain[depth:-depth].strip())
        ):
            parts.append((depth, name, []))
        else:
            parts[-1][2].append(line)
    return [(depth, name, "\n".join(lines).strip()) for depth, name, lines in parts]


def _section(parts: list[tuple[int, str, str]], wanted: str, title: str) -> str:
    """Return a section's text with the sections below it."""
    names = [name for _, name, _ in parts[1:]]
    folded = [name.casefold() for _, name, _ in parts]
    spelling = wanted.strip().casefold()
    position = folded.index(spelling) if spelling in folded else 0
    if not position:
        raise _no_section(names, wanted, title)
    depth, _, text = parts[position]
    below = []
    for inner, name, more in parts[position + 1 :]:
        if inner <= depth:
            break
        below.append(f"\n\n{name}\n{more}")
    return text + "".join(below)


def _no_section(names: Sequence[str], wanted: str, title: str) -> ToolError:
    if near := nearest(wanted, names):
        advice = f"Nearest are {_quote_names(near)}."
    elif names:
        advice = f"Its sections are {_quote_names(names)}."
    else:
        advice = "It has no sections: read it without `section`."
    return ToolError(
        "SECTION_NOT_FOUND",
        f"The page `{title}` has no section `{wanted}`.",
        suggestion=advice,
    )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:30])


wikipedia = Wikipedia()
"""For `--tools handrail_toolbox.wikipedia`. In production say who asks: `Wikipedia(contact=...)`."""
