"""How texts become words that can be compared."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.selectors import terms as module
from handrail.selectors.terms import (
    MOST_CHARACTERS,
    pieces,
    scripts,
    sentences,
    words,
)


@pytest.mark.parametrize(("text", "found"), [
    ("getPowerOutput", ["get", "power", "output"]),
    ("get_power_output", ["get", "power", "output"]),
    ("power.get-output/v2", ["power", "get", "output", "v", "2"]),
    ("HTMLParser", ["html", "parser"]),
    ("parseHTML", ["pars", "html"]),
    ("GET", ["get"]),
    ("天", ["天"]),
    ("查天气", ["查天", "天气"]),
    ("查weather天气", ["查", "weather", "天气"]),
    ("ＡＢＣ", ["abc"]),  # full width, as Chinese keyboards write it
    ("Zürich CAFÉ", ["zurich", "caf"]),
    ("погода в Москве", ["погода", "в", "москве"]),
    ("ตั๋ว", ["ตั", "ั๋", "๋ว"]),
    ("", []),
])  # fmt: skip
def test_a_text_becomes_words(text, found):
    assert words(text) == found


@pytest.mark.parametrize("forms", [
    ["city", "cities"], ["search", "searches", "searching", "searched"], ["plan", "planned", "planning", "plans"],
    ["invoice", "invoices", "invoicing"], ["box", "boxes"], ["status"],
])  # fmt: skip
def test_forms_of_one_word_are_one(forms):
    assert len({words(form)[0] for form in forms}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("string", "stre"), ("bus", "bu"), ("red", "r")]
)
def test_short_words_are_not_cut_to_others(one, other):
    assert words(one) != [other]


@pytest.mark.parametrize(("question", "count"), [
    ("What is the weather?", 1),
    ("Book a flight to Oslo. Then reserve a room, and send me the address.", 3),
    ("帮我查一下北京的天气。然后预订一家附近的酒店！", 2),
    ("  ", 0),
])  # fmt: skip
def test_a_question_is_cut_where_it_asks_for_something_else(question, count):
    assert len(sentences(question)) == count


@pytest.mark.parametrize(("text", "found"), [
    ("weather", {"latin"}), ("天气", {"cjk"}), ("天気はどう", {"cjk", "hiragana"}), ("날씨", {"hangul"}),
    ("погода", {"cyrillic"}), ("查询 A1 的余票和价格", {"cjk"}), ("12:30 ?", set()),
])  # fmt: skip
def test_the_scripts_of_a_text_are_told(text, found):
    assert scripts(text) == found


@given(st.text())
def test_any_text_has_words_without_capitals_or_spaces(text):
    assert all(
        word and word == word.lower() and not any(map(str.isspace, word))
        for word in words(text)
    )


@given(st.text(max_size=200), st.text(max_size=200))
def test_what_stands_on_the_next_line_changes_no_word(one, other):
    assert words(f"{one}\n{other}") == words(one) + words(other)


def test_a_document_in_a_question_is_read_up_to_its_bound():
    assert len(words("word " * MOST_CHARACTERS)) == MOST_CHARACTERS // 5


def test_the_examples_in_the_text_are_true():
    assert doctest.testmod(module).failed == 0


_LETTERS = st.text(
    alphabet=st.one_of(
        st.sampled_from("aeGPS09 _-./=<'\t\u3000\u0338\u0301\u1100\u1161查天ｶﾞéß"),
        st.characters(),
    ),
    max_size=30,
)


@given(st.lists(_LETTERS, max_size=4))
def test_the_words_of_pieces_are_those_of_the_texts(texts):
    assert [word for piece in pieces(texts) for word in words(piece)] == [
        word for text in texts for word in words(text)
    ]


def test_of_each_text_only_the_beginning_is_cut_into_pieces():
    long = "ab " * MOST_CHARACTERS
    assert len(pieces([long, "end", long])) == 2 * (MOST_CHARACTERS // 3 + 1) + 1
