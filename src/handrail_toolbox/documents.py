"""Search in documents: summaries first, then the full text of one by its name. Two tools over one index.

    runtime = hr.Runtime(Documents("handbook"))                     # a folder of .md and .txt
    runtime = hr.Runtime(Documents({"leave": "# Leave\\n\\n..."}))    # or texts by id

The folder is read when the first of the two tools is first called, and let go of when the runtime closes. What is
searched are passages of a few paragraphs, by their words (BM25, as tools are found), in any script; a document is found
by its best passage, and its summary is the place where the question's words stand.

Rule 1: the model names documents by id, never by path; an unknown id is refused.
Rule 2: a snapshot: what changes on the disk meanwhile is not seen until the index is opened again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Annotated, NotRequired, TypedDict

from msgspec import Struct
from pydantic import Field

from handrail.errors import ConfigError, ToolError
from handrail.parsing import names
from handrail.selectors.postings import Postings, TextField
from handrail.selectors.terms import NOISE, words
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset
from handrail_toolbox.files import Files

PASSAGE_CHARACTERS = 1_200
"""Of a passage: a few paragraphs. A longer paragraph is one passage."""

SUMMARY_CHARACTERS = 240
PAGE_BYTES = 12 * 1024
"""Of text on one page, in UTF-8: with the text around it, a page stays below the 16 KiB that a result may have."""

TITLE_WEIGHT = 3.0
"""What a word of the title counts beside one of the text, in each passage. A quarter's multiple, as in `selectors`."""

ENDINGS = (".md", ".markdown", ".txt", ".rst")


class Hit(TypedDict):
    """A document that fits: enough to choose by. `summary` is the place that fits best."""

    id: str
    title: str
    summary: str
    pages: int


class Hits(TypedDict):
    """What was found, best first; `note` says what else to try when that is nothing."""

    found: list[Hit]
    documents: int
    note: NotRequired[str]


class DocumentPage(TypedDict):
    """One page of a document."""

    id: str
    title: str
    text: str
    page: int
    pages: int
    has_more: bool


class Document(Struct, frozen=True):
    """A text with a name; `pages` is its text again, cut at ends of lines."""

    id: str
    title: str
    pages: Sequence[str]


class _Passage(Struct, frozen=True):
    document: Document
    text: str


class Documents(Toolset):
    """`search_documents` and `read_document` over one set of documents.

    Args:
        source: A folder, of which .md, .markdown, .txt and .rst are read, its folders too and no links; or texts by id.

    Raises:
        ConfigError: There is no such folder, or no text.
    """

    def __init__(self, source: str | Path | Mapping[str, str]) -> None:
        library = Library(source)
        super().__init__([SearchDocuments(library), ReadDocument(library)])


class Library:
    """Documents and their index, made for the first that opens it and dropped with the last that closes it."""

    def __init__(self, source: str | Path | Mapping[str, str]) -> None:
        if isinstance(source, Mapping) and not source:
            raise ConfigError(
                "Documents takes a folder, or texts by id; this mapping is empty"
            )
        self._source = dict(source) if isinstance(source, Mapping) else Files([source])
        self._lock = Lock()
        self._users = 0
        self._index: Index | None = None

    def open(self) -> None:
        """Read and index the documents, unless somebody has."""
        with self._lock:
            self._users += 1
            if self._index is None:
                source = self._source
                texts: Iterable[tuple[str, str]]
                if isinstance(source, dict):
                    texts = source.items()
                else:
                    texts = source.texts(ENDINGS)
                self._index = Index(
                    [Document(id, _title(id, text), _pages(text)) for id, text in texts]
                )

    def close(self) -> None:
        """Let go of them."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._index = None

    @property
    def index(self) -> Index:
        """The index, while somebody has it open."""
        if self._index is None:
            raise ToolError(
                "NOT_OPEN",
                "The documents are closed.",
                suggestion="Go on without them.",
            )
        return self._index


class Index:
    """Documents by id, and their passages by the words in them."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = {each.id: each for each in documents}
        self._passages = [
            _Passage(each, text) for each in documents for text in _passages(each)
        ]
        self._postings = Postings(
            (
                ([f"{each.document.title} {each.document.id}"], [each.text])
                for each in self._passages
            ),
            [TextField(TITLE_WEIGHT), TextField(1.0)],
            words=_words,
        )

    def top(self, query: str, most: int) -> list[tuple[Document, str]]:
        """Return the documents that share words with the query, the best first, each with its summary."""
        wanted = set(_words(query))
        scores: dict[int, float] = {}
        for word in sorted(wanted):  # in one order, for sums of floats depend on it
            for place, worth in (self._postings.get(word) or {}).items():
                scores[place] = scores.get(place, 0.0) + worth
        best: dict[str, tuple[Document, str]] = {}
        for place in sorted(scores, key=lambda place: (-scores[place], place)):
            passage = self._passages[place]
            if passage.document.id not in best:
                if len(best) == most:
                    break
                best[passage.document.id] = (
                    passage.document,
                    _summary(passage.text, wanted),
                )
        return list(best.values())


class SearchDocuments(BaseTool):
    """The first of the pair: what there is."""

    name = "search_documents"
    effect = "read"
    timeout_s = 10
    blocking = False
    aliases = (
        "搜索文档",
        "查找资料",
        "查手册",
        "知识库",
        "文档检索",
        "handbook",
        "knowledge base",
    )

    def __init__(self, library: Library) -> None:
        self._library = library
        super().__init__()

    def open(self) -> None:
        """See `BaseTool.open`."""
        self._library.open()

    def run(
        self,
        query: Annotated[str, Field(min_length=1, max_length=1000)],
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
    ) -> Hits:
        """Find documents about something, and see a summary of each.

        Use it before you answer from the documents, and read the ones that fit with read_document: a summary alone is
        not enough to answer from. Not for the web. Returns ids, titles and summaries, the best first; none when no word
        of the query is in any document.

        Args:
            query: What it is about, in the documents' language, such as "parental leave" or "年假天数".
            limit: How many documents are listed at most.
        """
        index = self._library.index
        hits = [
            Hit(
                id=document.id,
                title=document.title,
                summary=summary,
                pages=len(document.pages),
            )
            for document, summary in index.top(query, limit)
        ]
        if not hits:
            return Hits(
                found=[],
                documents=len(index.documents),
                note="No document fits. Use fewer or other words.",
            )
        return Hits(found=hits, documents=len(index.documents))

    def close(self) -> None:
        """See `BaseTool.close`."""
        self._library.close()


class ReadDocument(BaseTool):
    """The second of the pair: the full text of one, page by page."""

    name = "read_document"
    effect = "read"
    timeout_s = 10
    blocking = False
    aliases = ("阅读文档", "打开文档", "文档全文", "full text")

    def __init__(self, library: Library) -> None:
        self._library = library
        super().__init__()

    def open(self) -> None:
        """See `BaseTool.open`."""
        self._library.open()

    def run(
        self,
        id: Annotated[str, Field(min_length=1, max_length=1024)],
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> DocumentPage:
        """Read one page of a document in full.

        Use it with an id from search_documents. Not for files outside of them. Returns the text of the page; where
        has_more is true, read on with the next page.

        Args:
            id: Id of the document, exactly as search_documents gave it, such as "leave.md".
            page: Number of the page, from 1.
        """
        document = self._library.index.documents.get(id)
        if document is None:
            near = names.nearest(id, self._library.index.documents)
            if near:
                advice = f"Did you mean `{near[0]}`?"
            else:
                advice = "Find its id with `search_documents`."
            raise ToolError(
                "DOCUMENT_NOT_FOUND",
                f"There is no document `{id[:80]}`.",
                suggestion=advice,
            )
        pages = len(document.pages)
        if page > pages:
            message = f"`{id}` has {pages} page{'s' if pages > 1 else ''}; there is no page {page}."
            raise ToolError(
                "PAGE_NOT_FOUND", message, suggestion=f"Read a page from 1 to {pages}."
            )
        text = document.pages[page - 1]
        return DocumentPage(
            id=id,
            title=document.title,
            text=text,
            page=page,
            pages=pages,
            has_more=page < pages,
        )

    def close(self) -> None:
        """See `BaseTool.close`."""
        self._library.close()


# ---------------------------------------------------------------------- texts taken apart


def _title(id: str, text: str) -> str:
    """Return the first heading, else the first line if it is short, else the id."""
    heading = re.search(r"^#{1,3}[ \t]+(?P<title>.+)$", text, re.M)
    # by a pattern, a line of a million `#` would take days
    title = heading["title"].rstrip(" \t#\r") if heading else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return title[:120] or (first if 0 < len(first) <= 80 else id)


def _pages(text: str) -> Sequence[str]:
    """Cut a text into pages at ends of lines; a line longer than a page is cut within. There is always one page."""
    pages = []
    page = ""
    size = 0
    for line in text.splitlines(keepends=True):
        # Pieces of so many characters are never larger than a page, whatever the script: four bytes a character.
        for piece in (
            line[at : at + PAGE_BYTES // 4]
            for at in range(0, len(line), PAGE_BYTES // 4)
        ):
            more = len(piece.encode("utf-8", "surrogatepass"))
            if size + more > PAGE_BYTES:
                pages.append(page)
                page = ""
                size = 0
            page = page + piece
            size = size + more
    if page or not pages:
        pages.append(page)
    return pages


def _passages(document: Document) -> Iterator[str]:
    """Cut a document into passages at blank lines; a paragraph of many passages' length is cut within."""
    passage = ""
    for paragraph in re.split(
        r"\n[ \t]*\n", "".join(document.pages).replace("\r\n", "\n")
    ):
        for at in range(0, len(paragraph) or 1, 4 * PASSAGE_CHARACTERS):
            piece = paragraph[at : at + 4 * PASSAGE_CHARACTERS].strip()
            if passage and len(passage) + len(piece) > PASSAGE_CHARACTERS:
                yield passage
                passage = ""
            passage = f"{passage}\n\n{piece}" if passage else piece
    if passage:
        yield passage


def _words(text: str) -> list[str]:
    """Return what tells texts apart. Numbers stay, unlike in a question about tools: `4711` may be all there is."""
    return [word for word in words(text) if word not in NOISE]


_SENTENCE_ENDS = re.compile(r"(?<=[。！？；\n])|(?<=[.!?;])\s+")


def _summary(passage: str, wanted: set[str]) -> str:
    """Return the sentences of a passage from the one that has most of the words on, up to the length of a summary."""
    sentences = [each for each in _SENTENCE_ENDS.split(passage) if each.strip()]
    counts = [len(wanted.intersection(_words(each))) for each in sentences]
    start = counts.index(max(counts, default=0)) if counts else 0
    text = " ".join(" ".join(sentences[start:]).split())
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    return text[: SUMMARY_CHARACTERS - 1] + "…"
