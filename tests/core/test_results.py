"""What of a result reaches the model."""

import dataclasses
import enum
import json
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
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
    page,
    plain,
    shape,
    with_note,
)
from handrail.invisible import clean, clean_json
from tests.dialects.contract import check_growth


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
    # no JSON form: its repr
    (1j, '"1j"'),
    (int, "\"<class 'int'>\""),
    # and one that says nothing: its class
    (object(), '"<object>"'),
    (Silent(), '"<Silent>"'),                                    # and no repr either
    ([Silent(), 1], '["<Silent>",1]'),
    # what no wire can carry
    ("a\ud800b", "a?b"),
    (["a\ud800b"], '["a?b"]'),
    (round_and_round(), "[{'again': [...]}]"),
    (very_deep(), "<list>"),
])  # fmt: skip
def test_any_value_becomes_text(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize(("value", "json_value"), [
    ("text", "text"),
    ("a\ud800b", "a?b"),
    ((1, {"x": {2}}), [1, {"x": [2]}]),
    (Order(id=7, due=date(2026, 3, 1)), {"id": 7, "due": "2026-03-01"}),
    (round_and_round(), None),
    (very_deep(), None),
])  # fmt: skip
def test_any_value_becomes_plain_json_or_nothing(value, json_value):
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
    whole = as_text(value)
    assert shaped.whole == whole if shaped.cut else shaped.text == as_seen(value)


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
@given(rows=st.lists(st.builds(lambda id, name: {"id": id, "name": name}, st.integers(), st.text(max_size=20)),
                     min_size=60, max_size=80))  # fmt: skip
def test_a_list_keeps_whole_rows_from_both_ends(rows):
    shaped = shape(rows, 1000)
    kept = json.loads(shaped.text)
    first, last = map(
        int, shaped.cut.removeprefix("rows ").split(" of ")[0].split(" to ")
    )
    seen = json.loads(clean(as_text(rows)))
    assert kept == seen[:first] + seen[last + 1 :]
    assert 0 < len(rows) - 1 - last < first


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


def test_a_long_list_in_an_object_keeps_its_first_rows():
    kept = json.loads(shape({"rows": list(range(10_000)), "total": 10_000}, 1000).text)
    assert kept["total"] == 10_000
    assert kept["rows"][:3] == [0, 1, 2]
    assert (
        kept["rows"][-1] == f"[... {10_000 - len(kept['rows']) + 1} more of 10000 ...]"
    )


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


def test_a_note_does_not_go_into_an_object_that_is_cut_to_pieces():
    value = {f"key {n}": n for n in range(10_000)}
    cut = shape(value, 1000).text
    assert with_note(cut, "told", value) == f"{cut}\n[note: told]"


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
