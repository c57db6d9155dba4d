"""What a word is worth in a text, against the formula of BM25 written down once more."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.selectors.postings import SATURATION, Postings, TextField

_strings = st.lists(
    st.text(alphabet="ab é查 ", max_size=8).map(lambda text: text.replace("b", "ab ")),
    max_size=3,
)
_texts = st.lists(st.tuples(_strings, _strings, _strings), min_size=1, max_size=6)
FIELDS = (TextField(3.0), TextField(0.75), TextField(1.5, is_sized=False))


def worths(texts, evenness, naming):
    """Return what each word is worth, text by text."""
    counted = [
        [Counter(" ".join(strings).split()) for strings in text] for text in texts
    ]
    weights = [
        {
            word: sum(field.weight * counts[word] for field, counts in zip(FIELDS, text, strict=True))
            for word in set().union(*text)
        }
        for text in counted
    ]  # fmt: skip
    sizes = [
        sum(field.weight * counts.total() for field, counts in zip(FIELDS, text, strict=True) if field.is_sized)
        for text in counted
    ]  # fmt: skip
    usual = sum(sizes) / len(sizes) or 1.0
    found = {}
    for word in set().union(*weights):
        holding = [place for place, text in enumerate(weights) if word in text]
        most = (SATURATION + 1) * math.log(
            1 + (len(texts) - len(holding) + 0.5) / (len(holding) + 0.5)
        )
        if word.isascii():
            named = sum(word in text[0] for text in counted)
            most *= ((named + 1) / (len(holding) + 2)) ** naming
        found[word] = {
            place: most * weights[place][word]
            / (weights[place][word] + SATURATION * (1 - evenness + evenness * sizes[place] / usual))
            for place in holding
        }  # fmt: skip
    return found


@given(_texts, st.sampled_from([0.0, 0.75, 1.0]), st.sampled_from([0.0, 0.05]))
def test_a_word_is_worth_what_the_formula_says(texts, evenness, naming):
    index = Postings(texts, FIELDS, words=str.split, evenness=evenness, naming=naming)
    expected = worths(texts, evenness, naming)
    assert len(index) == len(expected)
    for word, worth in expected.items():
        assert word in index
        assert index.get(word) == pytest.approx(worth)


@given(_texts, st.lists(st.sampled_from(["a", "aa", "é", "查", "none"])))
def test_what_was_asked_before_changes_nothing(texts, asked):
    index = Postings(texts, FIELDS, words=str.split)
    answers = [index.get(word) for word in asked]
    assert [index.get(word) for word in reversed(asked)] == answers[::-1]
    fresh = Postings(texts, FIELDS, words=str.split)
    assert [fresh.get(word) for word in reversed(asked)] == answers[::-1]


def test_a_field_without_weight_is_not_read():
    index = Postings(
        [(["seen"], ["unseen"])], [TextField(1.0), TextField(0.0)], words=str.split
    )
    assert (len(index), index.get("unseen")) == (1, None)


def test_each_piece_becomes_words_once():
    asked = []

    def words(piece):
        asked.append(piece)
        return [piece]

    Postings([(["a b a"],), (["b, a"],)], [TextField(1.0)], words=words)
    assert asked == ["a", "b"]


@given(_texts)
def test_pieces_of_several_words_count_as_their_words(texts):
    """However often a piece comes, alone or beside others."""
    joined = [
        [[string.replace(" ", "X") for string in strings] for strings in text]
        for text in texts
    ]

    def words(piece):
        return piece.replace("X", " ").split()

    one = Postings(joined, FIELDS, words=words)
    spaced = [
        [[string.replace("X", " ") for string in strings] for strings in text]
        for text in joined
    ]
    other = Postings(spaced, FIELDS, words=str.split)
    for word in ("a", "aa", "ab", "é", "aab", "查"):
        assert one.get(word) == pytest.approx(other.get(word))
