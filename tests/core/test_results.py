"""What of a result reaches the model."""

import dataclasses
import enum
import json
import re
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from handrail.calls import Media, Page
from handrail.core.results import (
    LEAST_RESULT_BYTES,
    as_text,
    encode_if_it_fits,
    failure_text,
    page,
    plain,
    shape,
    with_note,
)
from handrail.errors import Failure
from handrail.invisible import clean, clean_json
from handrail.testing.contracts.dialects import check_growth


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Order(BaseModel):
    id: int
    due: date


class Line(
    msgspec.Struct, rename="camel", tag_field="kind", tag="line", omit_defaults=True
):
    unit_price: Any
    left_out: msgspec.UnsetType | None = msgspec.UNSET


@dataclasses.dataclass
class Blob:
    body: Any


class Attachment(BaseModel):
    body: bytes


class Client:
    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Client(key={self.key!r})"


class Colour(enum.Enum):
    RED = "red"


class Silent:
    def __repr__(self):
        raise RuntimeError("canary")


def round_and_round():
    circle: list = []
    circle.append({"again": circle})
    return circle


def very_deep():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    return deep


# ---------------------------------------------------------------------- as text


@pytest.mark.parametrize(("value", "text"), [
    ("as it is\n", "as it is\n"),
    ("", ""),
    (None, "null"),
    (True, "true"),
    # readable, and a third of the escapes
    ({"城市": "北京"}, '{"城市":"北京"}'),
    ([1, 2.5], "[1,2.5]"),
    ((1, 2), "[1,2]"),
    ({3}, "[3]"),
    # JSON has no such numbers
    ([float("nan"), float("inf")], '["NaN","Infinity"]'),
    (b"bytes that are text", '"bytes that are text"'),
    # and some that are none: base64
    ([b"\xff\xfe"], '["//4="]'),
    ({"a": (b"\xff\xfe", 1)}, '{"a":["//4=",1]}'),
    (Point(1, 2.0), '{"x":1,"y":2.0}'),
    (Order(id=7, due=date(2026, 3, 1)), '{"id":7,"due":"2026-03-01"}'),
    # its own JSON, not its attributes
    (Line(2.5), '{"kind":"line","unitPrice":2.5}'),
    ([Line(Order(id=7, due=date(2026, 3, 1)))], '[{"kind":"line","unitPrice":{"id":7,"due":"2026-03-01"}}]'),
    (Line(Silent()), '{"kind":"line","unitPrice":"<Silent>"}'),
    (Colour.RED, '"red"'),
    (datetime(2026, 3, 1, 12, tzinfo=UTC), '"2026-03-01T12:00:00Z"'),
    (Decimal("0.10"), '"0.10"'),
    (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
    (Path("/a/b"), '"/a/b"'),
    ({(1, 2): "x", None: "y"}, '{"1,2":"x","None":"y"}'),
    # bytes are text or base64, each for itself, wherever they stand
    ([b"ab", b"\xff\xfe"], '["ab","//4="]'),
    ([Blob(b"ab"), Blob(b"\xff\xfe")], '[{"body":"ab"},{"body":"//4="}]'),
    ([Attachment(body=b"ab"), Attachment(body=b"\xff\xfe")], '[{"body":"ab"},{"body":"//4="}]'),
    ([Line(b"ab"), Line(Blob(b"\xff\xfe"))],
     '[{"kind":"line","unitPrice":"ab"},{"kind":"line","unitPrice":{"body":"//4="}}]'),
    # two names that would be one
    ({1: "a", "1": "b"}, '{"1 (int)":"a","1":"b"}'),
    ([{"in": {True: 1, "true": 2}}], '[{"in":{"true (bool)":1,"true":2}}]'),
    ({1: 1, "1": 2, "1 (int)": 3}, '{"1 (int)":1,"1":2,"1 (int) #2":3}'),
    (Blob({None: 1, "None": 2}), '{"body":{"None (NoneType)":1,"None":2}}'),
    # no JSON form: a number as a text, of all else the class, since its repr may hold a secret
    (1j, '"1j"'),
    (Fraction(1, 3), '"1/3"'),
    (int, '"<type>"'),
    ({"by": Client("sk-secret")}, '{"by":"<Client>"}'),
    (Silent(), '"<Silent>"'),
    ([Silent(), 1], '["<Silent>",1]'),
    # what no wire can carry
    ("a\ud800b", "a?b"),
    (["a\ud800b"], '["a?b"]'),
    (round_and_round(), '"<list>"'),
    (very_deep(), '"<list>"'),
])  # fmt: skip
def test_any_value_becomes_text(value, text):
    assert as_text(value) == text


def test_the_names_of_a_long_object_are_compared_in_one_pass():
    rows = {f"row {i}": i for i in range(50_000)}  # two minutes if each with all
    assert json.loads(as_text(rows | {"raw": b"\xff"})) == rows | {"raw": "/w=="}


def test_keys_that_all_look_alike_get_names_in_one_pass():
    numbered = json.loads(as_text({Silent(): i for i in range(20_000)}))
    assert list(numbered.values()) == list(range(20_000))
    assert list(numbered)[::19_999] == ["<Silent> (Silent)", "<Silent> (Silent) #20000"]


@pytest.mark.parametrize(("value", "json_value"), [
    ("text", "text"),
    ("a\ud800b", "a?b"),
    ((1, {"x": {2}}), [1, {"x": [2]}]),
    (Order(id=7, due=date(2026, 3, 1)), {"id": 7, "due": "2026-03-01"}),
    (round_and_round(), "<list>"),
    (very_deep(), "<list>"),
])  # fmt: skip
def test_any_value_becomes_plain_json(value, json_value):
    assert plain(value) == json_value


# ---------------------------------------------------------------------- cut to size

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(st.text(max_size=8), inner, max_size=8)
    ),
    max_leaves=30,
)
LONG_TEXT = st.text(
    st.sampled_from('ab \n"\\\x01é北😀\ud800'), min_size=1, max_size=40
).map(lambda text: text * 50)


def long_of(value: st.SearchStrategy) -> st.SearchStrategy:
    """Values that are large because something in them is."""
    return (
        LONG_TEXT
        | st.lists(value | LONG_TEXT, max_size=60)
        | st.dictionaries(
            st.text(max_size=8),
            value | LONG_TEXT | st.lists(value, max_size=60),
            max_size=12,
        )
        | st.integers(1, 400).map(lambda count: {f"key {n}": n for n in range(count)})
    )


def as_seen(value):
    """Return the whole text without what nobody sees; two names of an object that would then be one stay two."""
    seen = clean(as_text(value))
    if isinstance(value, str) or size_of(json.loads(seen)) == size_of(plain(value)):
        return seen
    return as_text(clean_json(plain(value)))


def size_of(value):
    """Count the values in a JSON value."""
    if isinstance(value, dict):
        return 1 + sum(map(size_of, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(size_of, value))
    return 1


@settings(max_examples=120, deadline=None)
@given(value=long_of(JSON), most_bytes=st.integers(LEAST_RESULT_BYTES, 3000))
def test_a_result_never_takes_more_than_its_budget(value, most_bytes):
    shaped = shape(value, most_bytes)
    assert len(shaped.text.encode()) <= most_bytes
    seen = as_seen(value)
    assert bool(shaped.cut) == bool(shaped.whole) == (shaped.text != seen)


@settings(max_examples=80, deadline=None)
@given(value=JSON | long_of(JSON))
def test_what_is_kept_aside_is_the_whole_text(value):
    shaped = shape(value, 1000)
    whole = as_seen(value)
    assert shaped.whole == whole if shaped.cut else shaped.text == whole


@settings(max_examples=80, deadline=None)
@given(text=LONG_TEXT, most_bytes=st.integers(LEAST_RESULT_BYTES, 3000))
def test_a_text_keeps_its_head_and_its_tail_and_counts_what_is_left_out(
    text, most_bytes
):
    shaped = shape(text, most_bytes)
    if not shaped.cut:
        return
    head, rest = shaped.text.split("\n[... ", 1)
    left_out, tail = rest.split(" characters left out ...]\n", 1)
    whole = clean(as_text(text))
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + int(left_out) + len(tail) == len(whole)
    assert int(left_out) > 0


@settings(max_examples=80, deadline=None)
@given(value=long_of(JSON), most_bytes=st.integers(LEAST_RESULT_BYTES, 3000))
def test_whatever_is_cut_stays_json(value, most_bytes):
    shaped = shape(value, most_bytes)
    if not isinstance(value, str):
        assert type(json.loads(shaped.text)) is type(json.loads(as_seen(value)))


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.builds(lambda id, name: {"id": id, "name": name}, st.integers(), st.text(max_size=20)),
                     min_size=60, max_size=80))  # fmt: skip
def test_a_list_keeps_whole_rows_from_both_ends(rows):
    kept = json.loads(shape(rows, 1000).text)
    [gap] = [place for place, row in enumerate(kept) if isinstance(row, str)]
    first, last = kept[:gap], kept[gap + 1 :]
    seen = json.loads(clean(as_text(rows)))
    assert first + last == seen[:gap] + seen[len(seen) - len(last) :]
    assert kept[gap].startswith(f"[... {len(rows) - len(first) - len(last)} more: ")
    assert 0 < len(last) < len(first)


def documents(count, size):
    return [
        {"doc_id": n, "title": f"文档{n}", "content": "长" * size} for n in range(count)
    ]


@dataclasses.dataclass
class Document:
    doc_id: int
    title: str
    content: str


class Report(BaseModel):
    doc_id: int
    title: str
    content: str


FORMS = {
    "list": lambda rows: rows,
    "under a key": lambda rows: {"results": rows, "total": len(rows)},
    "deep": lambda rows: {"data": {"results": rows, "total": len(rows)}},
    "by name": lambda rows: {f"doc-{row['doc_id']}": row for row in rows},
    "tuple of dataclasses": lambda rows: tuple(Document(**row) for row in rows),
    "models": lambda rows: [Report(**row) for row in rows],
    "several texts": lambda rows: [
        {**row, "abstract": 'said "no"\n' * 300, "pages": [row["content"]] * 2}
        for row in rows
    ],
}


def all_rows(value):
    """Return the objects in a value that have an id."""
    if isinstance(value, list):
        return [row for part in value for row in all_rows(part)]
    if isinstance(value, dict):
        return [value] if "doc_id" in value else all_rows(list(value.values()))
    return []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("count", "size"), [(5, 5_000), (5, 200_000), (50, 2_000)])
def test_long_texts_are_cut_before_a_row_is_left_out(form, count, size):
    shaped = shape(FORMS[form](documents(count, size)))
    rows = all_rows(json.loads(shaped.text))
    assert [(row["doc_id"], row["title"]) for row in rows] == [
        (n, f"文档{n}") for n in range(count)
    ]
    assert 10_000 < len(shaped.text.encode()) <= 16 * 1024


@pytest.mark.parametrize(("count", "told"), [(300, 300), (2_000, 300)])
def test_rows_are_left_out_once_their_names_alone_do_not_fit(count, told):
    # a row takes 52 bytes: {"doc_id":123,"title":"文档123","content":"[...]"},
    rows = all_rows(json.loads(shape(documents(count, 2_000)).text))
    assert len(rows) >= told
    assert (rows[0]["doc_id"], rows[-1]["doc_id"]) == (0, count - 1)


MARK = re.compile(r"(?:\d+ more: |\[\.\.\. )(\d+) at (\d+) \.\.\.\]")


@settings(max_examples=80, deadline=None)
@given(value=long_of(JSON), most_bytes=st.integers(LEAST_RESULT_BYTES, 3000))
def test_each_mark_says_where_what_was_left_out_stands_in_the_whole(value, most_bytes):
    if isinstance(value, str):
        return
    shaped = shape(value, most_bytes)
    rest = shaped.whole
    for count, at in reversed(MARK.findall(shaped.text)):
        rest = f"{rest[: int(at)]}\0{rest[int(at) + int(count) :]}"
    # the rest is what is shown, but for texts that are left out whole
    pieces = re.split(r'"\[\.\.\.\]\.*":"\[\.\.\. .*? \.\.\.\]"|"\[\.\.\. \d+ more: .*? \.\.\.\]"|'
                      r' \[\.\.\. \d+ at \d+ \.\.\.\] |\[\.\.\.\]"', shaped.text)  # fmt: skip
    position = 0
    for piece in pieces if shaped.cut else ():
        assert piece in rest[position:]
        position = rest.index(piece, position) + len(piece)


@settings(max_examples=80, deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from("abcdef"),
        st.integers() | st.text("xy北", min_size=400, max_size=900),
    )
)
def test_an_object_keeps_every_key_and_its_short_values(fields):
    shaped = shape(fields, 1000)
    kept = json.loads(shaped.text)
    assert list(kept) == list(fields)
    assert all(
        kept[name] == value for name, value in fields.items() if isinstance(value, int)
    )


def test_a_long_list_in_an_object_keeps_its_first_and_last_rows():
    kept = json.loads(shape({"rows": list(range(10_000)), "total": 10_000}, 1000).text)
    assert kept["total"] == 10_000
    assert kept["rows"][:3] == [0, 1, 2]
    assert kept["rows"][-1] == 9_999


@pytest.mark.parametrize("details", [
    [{"field": f"row {n}", "problem": "长" * 400} for n in range(50)],
    [{"by": {"id": 7, "text": "x" * 50_000}}, {"at": 2}],
])  # fmt: skip
def test_the_details_of_a_failure_are_cut_like_a_result(details):
    failure = Failure("BAD", "It is bad.", "Mend it.", details=details)
    told = json.loads(failure_text(failure, "a note"))
    assert (told["error_message"], told["suggestion"]) == ("It is bad.", "Mend it.")
    assert 1000 < len(as_text(told["details"]).encode()) <= 4096
    assert type(told["details"]) is type(details)


@pytest.mark.parametrize("value", [
    "x" * 3_000_000,
    "北" * 1_000_000,
    [{"id": n, "name": "x" * 20} for n in range(70_000)],
    {"rows": [{"id": n, "name": "x" * 20} for n in range(70_000)], "total": 70_000},
    {f"key {n}": n for n in range(150_000)},
    ["x" * 3_000_000],
])  # fmt: skip
def test_three_megabytes_become_sixteen_kilobytes(value):
    shaped = shape(value)
    assert 8 * 1024 < len(shaped.text.encode()) <= 16 * 1024
    assert len(shaped.whole) >= 1_000_000


def test_text_that_json_writes_twice_as_long_still_fits():
    shaped = shape({"log": '"' * 2000 + "x" * 20_000, "ok": True}, 1000)
    assert len(shaped.text.encode()) <= 1000


@pytest.mark.parametrize("most_bytes", [0, 1, 100, LEAST_RESULT_BYTES])
def test_a_smaller_budget_than_the_least_is_the_least(most_bytes):
    assert shape("x" * LEAST_RESULT_BYTES, most_bytes).text == "x" * LEAST_RESULT_BYTES
    assert (
        len(shape("x" * (LEAST_RESULT_BYTES + 1), most_bytes).text)
        <= LEAST_RESULT_BYTES
    )


def test_an_iterator_beside_a_value_without_json_is_read_once():
    assert (
        encode_if_it_fits({"rows": (n for n in range(3)), "by": Silent()}, 1000)
        == '{"rows":[0,1,2],"by":"<Silent>"}'
    )
    assert [
        encode_if_it_fits(value, 1000)
        for value in (Page([1]), [Media("image/png", b"1")])
    ] == [None, None]


def test_a_generator_is_read_once():
    shaped = shape((n for n in range(5000)), 1000)
    assert shaped.text.startswith("[0,1,2,")
    assert shaped.whole.endswith("4999]")


# ---------------------------------------------------------------------- notes


@pytest.mark.parametrize(("value", "told"), [
    ({"id": 7}, '{"id":7,"note":"told"}'),
    ({}, '{"note":"told"}'),
    # the tool's own note stays
    ({"note": "mine"}, '{"note":"mine"}\n[note: told]'),
    ([1], "[1]\n[note: told]"),
    # a text that spells JSON is a text
    ('{"a": 1}', '{"a": 1}\n[note: told]'),
    ("text", "text\n[note: told]"),
])  # fmt: skip
def test_a_note_is_one_more_field_or_one_more_line(value, told):
    assert with_note(as_text(value), "told", value) == told


def test_a_note_is_a_field_of_an_object_that_is_cut():
    value = {f"key {n}": n for n in range(10_000)}
    told = json.loads(with_note(shape(value, 1000).text, "told", value))
    assert (told["key 0"], told["key 9999"], told["note"]) == (0, 9999, "told")


def test_no_note_changes_nothing():
    assert with_note("text", "", "text") == "text"


# ---------------------------------------------------------------------- read on


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=300), limit=st.integers(1, 50))
def test_whoever_follows_next_reads_the_whole_text(text, limit):
    pieces, offset = [], 0
    while offset is not None:
        answer = page(text, offset, limit)
        assert len(answer["text"]) <= limit
        pieces.append(answer["text"])
        offset = answer["next"]
    assert "".join(pieces) == text


def test_a_page_says_where_it_stands():
    assert page("abcdef", 2, 3) == {
        "text": "cde",
        "offset": 2,
        "total_characters": 6,
        "next": 5,
    }


def test_a_page_beyond_the_end_is_empty():
    assert page("abc", 99, 3) == {
        "text": "",
        "offset": 99,
        "total_characters": 3,
        "next": None,
    }


def test_whoever_follows_next_reads_every_matching_line():
    text = "\n".join(f"line {n} {'hit' if n % 3 == 0 else ''}" for n in range(100))
    lines, offset = [], 0
    while offset is not None:
        answer = page(text, offset, 800, "hit")
        lines += answer["text"].split("\n")
        offset = answer["next"]
    assert answer["matches"] == 34
    assert lines == [f"{n}: line {n} hit" for n in range(0, 100, 3)]


def test_a_pattern_that_is_nowhere_matches_nothing():
    assert page("abc", 0, 80, "x") == {"matches": 0, "text": "", "next": None}


def test_whoever_looks_for_a_row_of_a_long_table_finds_each_that_has_the_words():
    rows = [
        {"order": f"A-{n:05}", "state": "late" if n % 1000 == 0 else "paid"}
        for n in range(5000)
    ]
    answer = page(shape(rows).whole, 0, 8000, "late")
    assert answer["matches"] == len(answer["text"].split("\n")) == 5
    assert all(
        f"A-{n:05}" in line
        for n, line in zip(
            range(0, 5000, 1000), answer["text"].split("\n"), strict=True
        )
    )


def test_what_stands_near_is_shown_with_it_and_once():
    assert page(f"{'a' * 300}hit hit{'b' * 300}", 0, 80, "hit")["matches"] == 1


def test_of_a_very_long_line_only_what_stands_around_the_pattern_is_shown():
    answer = page("a" * 1_000_000 + "needle" + "b" * 1_000_000, 0, 80, "needle")
    assert "needle" in answer["text"]
    assert len(answer["text"]) < 250


def matching_by_lines(text, offset, most, pattern):
    """What a page of matches shows, by splitting the text whole."""
    lines = [
        f"{number}: {line}"
        for number, line in enumerate(text.split("\n"))
        if pattern in line
    ]
    return "\n".join(lines[offset : offset + most]), len(lines)


@given(
    text=st.text(alphabet="ab\n", max_size=60),
    pattern=st.text(alphabet="ab\n", min_size=1, max_size=3),
    offset=st.integers(0, 5),
)
def test_a_page_of_matches_is_that_of_the_lines_with_the_pattern(text, pattern, offset):
    found = page(text, offset, 160, pattern)
    assert (found["text"], found["matches"]) == matching_by_lines(
        text, offset, 2, pattern
    )
    assert found["next"] == (offset + 2 if offset + 2 < found["matches"] else None)


@pytest.mark.slow
def test_a_page_of_very_many_matches_takes_the_memory_of_that_page():
    text = "a\n" * 1_000_000
    tracemalloc.start()
    try:
        found = page(text, 0, 8000, "a")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["matches"], found["next"]) == ("more than 10,100", 100)
    assert most < 100_000
    assert page(text, 999_950, 8000, "a")["matches"] == 1_000_000


def test_a_page_of_matches_in_one_long_line_grows_with_it_and_no_faster():
    check_growth(lambda size: lambda: page("ab" * size, size, 8000, "b"), 300_000)


ROWS = st.lists(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
        | st.sampled_from(["\ud800", "\u200b", b"ab", b"\xff", date(2026, 3, 1), "x" * 300]),
        lambda parts: st.lists(parts, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), parts, max_size=2),
        max_leaves=6,
    ),
    max_size=60,
)  # fmt: skip


class ParsedList(list):
    """A list of one's own: its text is that of any list, and is parsed."""


@given(rows=ROWS, times=st.sampled_from([1, 20]))
def test_a_list_is_cut_by_its_own_rows_as_it_is_by_those_of_its_text(rows, times):
    assert shape(rows * times, 600) == shape(ParsedList(rows * times), 600)
