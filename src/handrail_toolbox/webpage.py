"""Reading one page of the web, as text, through the network guard.

    runtime = hr.Runtime([ReadPage(Egress(hosts=["*.python.org"]))])

Rule 1: every request, each redirect too, goes through `network.clients`.
Rule 2: HTML is read in one pass, each character once or twice, whatever is wrong with it: the page's author may be
        hostile, and a parser that tries again is a way to stop us.

`robots.txt` is not asked, scripts are not run. Without `hosts`, a model that was talked into it can carry what it knows
to any public address by the address itself: give a list wherever a run also sees what is private.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypedDict

import httpx2
from pydantic import Field

from handrail.context import Context
from handrail.errors import ToolError
from handrail.network.clients import http_client
from handrail.network.egress import Egress
from handrail.tools.settings import Limits
from handrail_toolbox.fetching import USER_AGENT, Answer, HttpTool, check_status

MOST_PAGE_BYTES = 2 * 1024 * 1024
MOST_REDIRECTS = 5

_HTML = {"text/html", "application/xhtml+xml"}
_TEXTS = (
    "text/",
    "application/json",
    "application/xml",
    "application/ld+json",
    "application/yaml",
)
_NOT_FOUND = {404, 410}


class PageText(TypedDict):
    """A page as text."""

    url: str
    title: str
    text: str
    cut: bool


class ReadPage(HttpTool):
    """Fetch one page and return its text.

    Args:
        egress: Where it may go; by default every public host.
    """

    name = "read_page"
    effect = "read"
    timeout_s = 30.0
    limits = Limits(attempt_timeout_s=15.0)
    aliases = ("读网页", "打开网址", "网页", "链接")

    def __init__(self, egress: Egress | None = None) -> None:
        self.guard = egress or Egress()
        super().__init__()

    def new_client(self) -> httpx2.Client:
        """See `HttpTool.new_client`."""
        return http_client(
            self.guard,
            follow_redirects=True,
            max_redirects=MOST_REDIRECTS,
            headers={"user-agent": USER_AGENT},
        )

    def run(
        self, url: Annotated[str, Field(max_length=2000)], context: Context[Any]
    ) -> PageText:
        """Fetch a page of the web by its address and read it as text, without scripts and images. Use it for an address
        that the user gave or a page names; to find pages, use a search.

        Args:
            url: The whole address, such as "https://docs.python.org/3/library/ipaddress.html".

        Returns:
            `url` after redirects, `title`, and `text`; `cut` is true when the page was longer than 2 MB.
        """
        try:
            answer = self.fetch(
                "GET", _address(url), context.remaining_s, most_bytes=MOST_PAGE_BYTES
            )
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError):
            raise _no_address(url) from None
        except httpx2.TooManyRedirects:
            raise ToolError(
                "PAGE_UNREADABLE",
                f"The page redirects more than {MOST_REDIRECTS} times.",
                suggestion="Use another source.",
            ) from None
        check_status(answer, "The site")
        if answer.status != 200:
            raise _refusal(answer)
        return _page_text(answer)


def _address(url: str) -> str:
    """Return an address as it is asked for; one without `https://` is no address, and no host is guessed in it."""
    if not re.match("https?://[^/?#]", url.strip(), re.IGNORECASE):
        raise _no_address(url)
    return url.strip()


def _no_address(url: str) -> ToolError:
    return ToolError(
        "BAD_ADDRESS",
        f"`{url[:100]}` is no address of the web.",
        suggestion='Give the whole address: "https://example.org/page".',
    )


def _refusal(answer: Answer) -> ToolError:
    if answer.status in _NOT_FOUND:
        return ToolError(
            "PAGE_NOT_FOUND",
            f"There is no page at this address (HTTP {answer.status}).",
            suggestion="Check the address, or search for the page.",
        )
    return ToolError(
        "PAGE_UNREADABLE",
        f"The site did not give the page (HTTP {answer.status}).",
        suggestion="Use another source; the page may need an account.",
    )


def _page_text(answer: Answer) -> PageText:
    kind = answer.media_type or "text/html"
    if kind not in _HTML and not kind.startswith(_TEXTS):
        raise ToolError(
            "PAGE_UNREADABLE",
            f"This address holds {kind[:60]}, which is no text.",
            suggestion="Find a page about it instead.",
        )
    title = ""
    text = _decode(answer)
    if kind in _HTML:
        title, text = text_of_html(text)
    return PageText(
        url=str(answer.url),
        title=title,
        text=text,
        cut=answer.cut,
    )


_CHARSET = re.compile(r"charset=[\"']?([\w.:-]{1,40})", re.ASCII | re.IGNORECASE)
# Python knows more codecs than the web has, some of them slow on purpose: `punycode` takes hours for a megabyte.
_KNOWN_CHARSET = re.compile(
    r"utf-?(?:8|16|16le|16be|32)|gbk|gb2312|gb18030|big5(?:-hkscs)?|shift[_-]jis|sjis|euc-?[a-z]{2}|iso-2022-[a-z]{2}"
    r"|iso-?8859-\d{1,2}|latin-?1|(?:us-)?ascii|windows-\d{3,4}|cp\d{3,4}|koi8-[ru]|tis-620|macintosh",
    re.IGNORECASE,
)
_META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def _decode(answer: Answer) -> str:
    """Return the body as text: as the header says, as the page says, as UTF-8, or as GB18030 of older Chinese pages."""
    header = _CHARSET.search(answer.headers.get("content-type", ""))
    meta = _META.search(answer.body[:2048])
    charsets = []
    if header:
        charsets.append(header[1])
    if meta:
        charsets.append(meta[1].decode())
    for charset in (*filter(_KNOWN_CHARSET.fullmatch, charsets), "utf-8", "gb18030"):
        try:
            return answer.body.decode(charset)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    return answer.body.decode("utf-8", "replace")


# ---------------------------------------------------------------------- HTML as text

_RAW = (
    "script",
    "style",
    "template",
    "noscript",
    "svg",
    "iframe",
    "nav",
    "textarea",
    "select",
)
"""Elements of which nothing is read."""
_END_OF_RAW = {name: re.compile(f"</{name}(?=[\\s>/])", re.IGNORECASE) for name in _RAW}
_BEFORE: Mapping[str, str] = {
    "li": "\n- ",
    "br": "\n",
    "tr": "\n",
    "td": " | ",
    "th": " | ",
    "hr": "\n\n",
    "dt": "\n",
    "dd": "\n  ",
    **dict.fromkeys(
        (
            "p",
            "div",
            "section",
            "article",
            "main",
            "header",
            "footer",
            "aside",
            "ul",
            "ol",
            "table",
            "pre",
            "blockquote",
            "dl",
            "figure",
            "figcaption",
            "form",
            "title",
        ),
        "\n\n",
    ),
    **{f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)},
}
"""What a text has where an element begins; those of them that are blocks also end a paragraph."""
_OPENING = re.compile("<(?=[A-Za-z/!?])")
"""Where markup begins; any other `<` is text."""
_NAME = re.compile(r"/?([A-Za-z][A-Za-z0-9]{0,20})")


def text_of_html(source: str) -> tuple[str, str]:
    """Return title and text of a page: headings with `#`, items with `-`, cells parted by `|`.

    >>> text_of_html("<title>T</title><h1>A &amp; B</h1><ul><li>one<li>two</ul><script>x</script>")
    ('T', '# A & B\\n\\n- one\\n- two')
    """
    title = ""
    pieces = []
    in_title = False
    for kind, piece in _pieces(source):
        if kind == "text":
            if in_title:
                title = title or " ".join(piece.split())
            else:
                pieces.append(re.sub(r"[\s\xa0]+", " ", piece))
        elif piece == "title":
            in_title = kind == "begin"
        elif piece in _BEFORE:
            before = _BEFORE[piece]
            if kind == "begin":
                pieces.append(before)
            elif "\n\n" in before:
                pieces.append("\n\n")
    lines = (line.strip().removeprefix("| ") for line in "".join(pieces).split("\n"))
    return title[:300], re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """Give texts, and the names of elements where they begin and end. What is never closed ends the page."""
    at = 0
    while (opener := _OPENING.search(source, at)) is not None:
        opening = opener.start()
        yield "text", _unescape(source[at:opening])
        if source.startswith("<!--", opening):
            at = source.find("-->", opening + 4) + 3
            if at < 3:
                return
            continue
        element = _NAME.match(source, opening + 1)
        closing = source.find(">", opening)
        if closing < 0:
            return
        at = closing + 1
        if element is None:
            continue
        name = element[1].lower()
        yield ("end" if element[0].startswith("/") else "begin"), name
        if name in _END_OF_RAW and not element[0].startswith("/"):
            end = _END_OF_RAW[name].search(source, at)
            if end is None:
                return
            at = end.start()
    yield "text", _unescape(source[at:])


def _unescape(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:
        # a character's number of thousands of digits, which Python does not read
        return text


read_page = ReadPage()
"""For `--tools handrail_toolbox.webpage`: every public host."""
