"""Document search: what is found, what is shown of it, and how the full text is read."""

import asyncio

import pytest

import handrail as hr
from handrail.testing.checklist import check
from handrail_toolbox.documents import PAGE_BYTES, Documents

HANDBOOK = {
    "leave.md": "# Parental leave\n\nEvery parent may take sixteen weeks.\n\nAsk the people team two months ahead.",
    "expenses.md": "# Travel expenses\n\nTrains are paid in second class. Error 4711 means that a receipt is missing.",
    "假期.md": "# 年假规定\n\n入职满一年的员工每年有十五天年假。\n\n未休的年假可以顺延到次年三月。",
    "报销.md": "# 报销流程\n\n出差回来后三十天内提交发票。高铁二等座可以报销。",
}


def asked(documents, *calls):
    async def make():
        async with hr.Runtime(documents) as runtime:
            return [await runtime.call(tool, arguments) for tool, arguments in calls]

    return asyncio.run(make())


def found(query, documents=HANDBOOK, **more):
    (result,) = asked(
        Documents(documents), ("search_documents", {"query": query, **more})
    )
    return [hit["id"] for hit in result.value["found"]]


@pytest.mark.parametrize(("query", "best"), [
    ("how many weeks for parents", "leave.md"),
    ("train receipt", "expenses.md"),
    ("4711", "expenses.md"),
    ("我有几天年假？", "假期.md"),
    ("出差的发票什么时候提交", "报销.md"),
    ("PARENTAL", "leave.md"),
])  # fmt: skip
def test_a_document_is_found_by_its_words(query, best):
    assert found(query)[0] == best


def test_what_stands_nowhere_finds_nothing():
    assert found("kubernetes") == []


def test_a_search_shows_the_place_that_fits_and_not_the_whole_text():
    (result,) = asked(
        Documents(HANDBOOK), ("search_documents", {"query": "顺延到三月"})
    )
    assert result.value["found"] == [
        {
            "id": "假期.md",
            "title": "年假规定",
            "summary": "未休的年假可以顺延到次年三月。",
            "pages": 1,
        }
    ]
    assert result.value["documents"] == 4


def test_a_document_is_found_by_a_passage_far_inside_of_it():
    long = (
        "# Long\n\n"
        + "\n\n".join(f"Paragraph {number} says little." for number in range(5000))
        + "\n\nThe zebra."
    )
    assert found("zebra", HANDBOOK | {"long.md": long}) == ["long.md"]


def test_the_snippet_is_of_the_passage_that_fits_best():
    text = (
        "# Zoo\n\nA zebra and a lion live here."
        + "\n\nfiller text. " * 200
        + "\n\nThe lion sleeps."
    )
    (result,) = asked(
        Documents({"zoo": text}), ("search_documents", {"query": "zebra lion"})
    )
    assert result.value["found"][0]["summary"].startswith("A zebra and a lion")


def test_a_document_appears_once_however_many_of_its_passages_fit():
    assert (
        found("leave", {"a": "# A\n\n" + "leave now. " * 2000, "b": "we leave."}).count(
            "a"
        )
        == 1
    )


def test_as_many_are_shown_as_are_asked_for():
    assert (
        len(found("leave", {str(number): "leave" for number in range(9)}, limit=3)) == 3
    )


def test_a_long_document_is_read_page_by_page_and_nothing_is_lost():
    text = (
        "".join(f"第{number}行，这里是内容。\n" for number in range(3000))
        + "x" * 50_000
    )
    documents = Documents({"long": text})
    (first,) = asked(documents, ("read_document", {"id": "long"}))
    pages = asked(
        documents,
        *(
            ("read_document", {"id": "long", "page": n + 1})
            for n in range(first.value["pages"])
        ),
    )
    assert "".join(page.value["text"] for page in pages) == text
    assert all(len(page.value["text"].encode()) <= PAGE_BYTES for page in pages)
    assert [page.value["has_more"] for page in pages] == [True] * (len(pages) - 1) + [
        False
    ]


def test_a_page_fits_into_a_result():
    (page,) = asked(
        Documents({"long": "天" * 50_000}), ("read_document", {"id": "long"})
    )
    assert "read_result" not in page.text


def test_what_is_not_there_says_what_is_near():
    unknown, page = asked(
        Documents(HANDBOOK),
        ("read_document", {"id": "leaves.md"}),
        ("read_document", {"id": "leave.md", "page": 2}),
    )
    assert (unknown.failure.code, unknown.failure.suggestion) == (
        "DOCUMENT_NOT_FOUND",
        "Did you mean `leave.md`?",
    )
    assert (page.failure.code, page.failure.suggestion) == (
        "PAGE_NOT_FOUND",
        "Read a page from 1 to 1.",
    )


def test_a_folder_is_read_without_links_and_what_is_no_text(tmp_path):
    (tmp_path / "secret.md").write_text("zebra")
    folder = tmp_path / "handbook"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/a.MD").write_bytes("退款说明：七天之内可以退款。".encode("gb18030"))
    (folder / "b.md").write_bytes(b"\0zebra")
    (folder / "c.png").write_text("zebra")
    (folder / "d.md").symlink_to("../secret.md")
    refund, zebra = asked(
        Documents(folder),
        ("search_documents", {"query": "退款"}),
        ("search_documents", {"query": "zebra"}),
    )
    assert [hit["id"] for hit in refund.value["found"]] == ["deep/a.MD"]
    assert zebra.value["found"] == []


def test_the_index_is_made_once_and_dropped_at_the_end(tmp_path):
    (tmp_path / "a.md").write_text("first")
    documents = Documents(tmp_path)
    library = documents["search_documents"]._library

    async def twice():
        async with hr.Runtime(documents) as runtime:
            await runtime.call("search_documents", {"query": "first"})
            made = library.index
            (tmp_path / "a.md").write_text("second")
            await runtime.call("read_document", {"id": "a.md"})
            assert library.index is made

    asyncio.run(twice())
    with pytest.raises(hr.ToolError, match="closed"):
        _ = library.index
    (result,) = asked(documents, ("read_document", {"id": "a.md"}))
    assert result.value["text"] == "second"


@pytest.mark.parametrize("source", [{}, "/nowhere/there"])
def test_a_source_without_texts_is_said_when_the_tools_are_made(source):
    with pytest.raises(hr.ConfigError):
        Documents(source)


@pytest.mark.parametrize(("text", "title"), [
    ("# One ##  \n", "One"), ("text\n\n## C# and F#\r\n", "C# and F"), ("# #\nx", "# #"), ("####### no", "####### no"),
    ("# a" + "#" * 1_000_000 + "b", "a" + "#" * 119), ("# a" + " " * 1_000_000 + "b", "a" + " " * 119),
])  # fmt: skip
def test_a_title_is_the_first_heading_and_is_found_in_one_pass(text, title):
    (page,) = asked(Documents({"x": text}), ("read_document", {"id": "x"}))
    assert page.value["title"] == title


def test_an_empty_document_has_one_empty_page():
    (page,) = asked(Documents({"empty": ""}), ("read_document", {"id": "empty"}))
    assert (page.value["text"], page.value["pages"], page.value["title"]) == (
        "",
        1,
        "empty",
    )


def test_lint_and_check_find_nothing():
    documents = Documents(HANDBOOK)
    assert (hr.lint(documents).findings, check(documents).missing) == ([], [])
