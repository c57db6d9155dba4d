"""Splitting server-sent events; the rules are those of the HTML standard, section 9.2.6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.dialects.wires.sse import EventSplitter, ServerEvent
from handrail.testing.contracts.dialects import in_pieces


def split(*pieces: str | bytes) -> list[ServerEvent]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.close()


@pytest.mark.parametrize(("text", "events"), [
    ("data: a\n\n", [("a", "")]),
    ("data:a\n\n", [("a", "")]),                          # the space is optional,
    ("data:  a\n\n", [(" a", "")]),                       # and only one is taken off
    ("data: a: b\n\n", [("a: b", "")]),                   # only the first colon parts
    ("data: a\ndata: b\n\n", [("a\nb", "")]),             # several lines are one text
    ("event: error\ndata: a\n\n", [("a", "error")]),
    # a type without data is forgotten
    ("event: error\n\ndata: a\n\n", [("a", "")]),
    (": comment\n\ndata: a\n\n", [("a", "")]),
    ("id: 1\nretry: 5\ndata: a\n\n", [("a", "")]),
    # a field without colon has an empty value
    ("data\n\n", [("", "")]),
    ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("a", ""), ("b", ""), ("c", "")]),
    ("\ufeffdata: a\n\n", [("a", "")]),
    # only at the very start is it a mark
    ("data: \ufeff\n\n", [("\ufeff", "")]),
    # ends of lines to Python only
    ("data: a\u2028b\u0085c\x0bd\n\n", [("a\u2028b\u0085c\x0bd", "")]),
    # the end of the stream ends the event
    ("data: a", [("a", "")]),
    ("data: a\n", [("a", "")]),
    ("", []),
    ("\n\n\n", []),
])  # fmt: skip
def test_events_are_read_as_the_standard_says_however_they_are_cut(text, events):
    whole = text.encode()
    assert split(text) == split(whole) == events
    assert split(*in_pieces(whole, range(len(whole)))) == events
    assert split(*text) == events
    for cut in range(len(whole) + 1):
        assert split(whole[:cut], whole[cut:]) == events


lines = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)


@given(
    events=st.lists(st.lists(lines, min_size=1, max_size=3), max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 10**6), max_size=30),
)
def test_what_was_sent_is_what_is_read(events, end, cuts):
    whole = "".join(
        "".join(f"data: {line}{end}" for line in event) + end for event in events
    ).encode()
    assert split(*in_pieces(whole, cuts)) == [
        ("\n".join(event), "") for event in events
    ]


@given(noise=st.binary(max_size=200), cuts=st.lists(st.integers(0, 10**6), max_size=10))
def test_noise_raises_nothing_and_reads_the_same_however_it_is_cut(noise, cuts):
    assert split(*in_pieces(noise, cuts)) == split(noise)


def test_an_answer_that_is_no_stream_is_kept_for_whoever_can_read_it():
    splitter = EventSplitter()
    assert [
        *splitter.feed('{\n  "error": '),
        *splitter.feed('"no"\n}'),
        *splitter.close(),
    ] == []
    assert splitter.strays == ["{", '  "error": "no"', "}"]


def test_after_the_first_event_nothing_astray_is_kept():
    splitter = EventSplitter()
    splitter.feed("data: a\n\n" + "x: y\n" * 1000)
    assert splitter.strays == []
