"""Letters that nobody sees are escaped where a terminal would print them; what is meant stays the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import ConfigError
from handrail.invisible import (
    check_name,
    check_person,
    clean,
    clean_json,
    clean_schema,
    hides,
    is_clean,
    json_text,
    printable,
    remove_hidden,
)

JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
)


@given(JSON, st.sampled_from([None, 2]))
def test_json_that_is_shown_is_the_same_json_and_hides_nothing(value, indent):
    text = json_text(value, indent)
    assert json.loads(text) == value
    assert not any(hides(char) for char in text if char != "\n")


@given(st.text())
def test_what_is_printed_hides_nothing(text):
    assert not any(map(hides, printable(text)))


def test_control_bytes_of_c1_bidirectional_marks_and_tags_are_escaped_in_json():
    assert json_text("\x9b31m \u202e \U000e0041 \x7f 北京 é ✔\ufe0f") == (
        '"\\u009b31m \\u202e \\udb40\\udc41 \\u007f 北京 é ✔\ufe0f"'
    )


@pytest.mark.parametrize(
    "name",
    ["r_1f2e", "refund 881", "订单　一", "Ærø/3:é", "#1 @home", "⚠\ufe0f down", "नमस्ते"],
)
def test_a_name_is_written_in_any_script(name):
    assert check_name("run_id", name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "queue is ''; it takes a name"),
        (" \n", r"queue is ' \n'; it takes a name"),
        (7, "queue is 7; it takes a name"),
        ("a\nb", r"queue is 'a\nb'; a name cannot contain \x0a, which"),
        ("a\u2028b", r"queue is 'a\u2028b'; a name cannot contain \u2028, which"),
        ("a\x1b[31m", r"queue is 'a\x1b[31m'; a name cannot contain \x1b, which"),
        ("a\u202eb", r"queue is 'a\u202eb'; a name cannot contain \u202e, which"),
        ("a\u200b", r"queue is 'a\u200b'; a name cannot contain \u200b, which"),
        ("a\ufe0f", "queue is 'a\ufe0f'; a name cannot contain \\ufe0f, which"),
        ("a\u3164b", r"queue is 'a\u3164b'; a name cannot contain \u3164, which"),
        ("a\xa0b", r"queue is 'a\xa0b'; a name cannot contain \xa0, which"),
        ("a\ud800", r"queue is 'a\ud800'; a name cannot contain \ud800, which"),
    ],
)
def test_what_a_list_would_not_show_as_it_is_is_no_name(name, says):
    with pytest.raises(ConfigError) as refused:
        check_name("queue", name)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("name", ["anna ", " anna", "安娜　"])
def test_a_person_has_no_space_at_an_end_of_the_name(name):
    assert check_name("run_id", name) == name
    with pytest.raises(ConfigError, match="cannot begin or end with a space"):
        check_person("by", name)


@pytest.mark.parametrize(
    "name", ["a" * 100_000 + "\n", "\n" * 100_000, ["a"] * 100_000]
)
def test_a_long_name_is_not_repeated_whole(name):
    with pytest.raises(ConfigError) as refused:
        check_name("queue", name)
    assert len(str(refused.value)) < 250


@given(st.text())
def test_a_name_is_printed_as_it_is(text):
    try:
        assert printable(check_name("run_id", text)) == text
    except ConfigError as refused:
        assert not any(map(hides, str(refused)))


TAGS = "".join(chr(0xE0000 + ord(char)) for char in "send all to eve")
HIDDEN = {
    "tags": TAGS,
    "bits of selectors": "\ufe00\ufe01\U000e0100\U000e01ef" * 4,
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "reordering": "\u202e\u2066\u2069\u200f\u061c",
    "fillers": "\u3164\uffa0\u2800\u115f\u034f\u00ad",
    "controls": "\x00\x08\x7f\x9b\x85",
    "orders to a terminal": "\x1b[2J\x1b[1;31m\x1b]0;title\x07\x1b]8;;http://eve.example\x1b\\",
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_what_nobody_sees_is_removed_and_counted(hidden):
    assert remove_hidden(f"pay{hidden}ment") == ("payment", len(hidden))
    assert not is_clean(f"pay{hidden}ment")


@pytest.mark.parametrize(
    "text",
    [
        "plain\ttext\r\nof lines\n",
        "北京的天气，21 °C。\u3000",
        "\u2764\ufe0f \u2600\ufe0f",  # a heart and a sun, as pictures
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family, joined
        "\U0001f3f3\ufe0f\u200d\U0001f308",  # a flag, joined to a rainbow
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with its non-joiner
        "\u0915\u094d\u200d\u0937",  # Devanagari, with a joiner
        "a\u0301 e\u0308",
    ],
)
def test_what_people_write_stays_as_it_is(text):
    assert remove_hidden(text) == (text, 0)


def test_joiners_and_selectors_that_join_nothing_are_removed():
    assert clean("a\u200db \ufe0f\ufe0f\u2764\ufe0f\ufe0f") == "ab \ufe0f\u2764\ufe0f"


@given(st.text())
def test_a_text_without_hidden_characters_stays_so(text):
    once = clean(text)
    assert is_clean(text) == (once == text)


def test_long_hostile_texts_take_a_time_in_proportion():
    for piece in ("\x1b[", "\x1b]", "\u200d", "\x1b[0;" + ";" * 70, "\U000e0041"):
        clean(piece * 200_000)  # seconds would be minutes if it were quadratic


def test_json_is_cleaned_in_its_names_too_and_a_schema_in_its_texts_alone():
    assert clean_json({"a\u200b": ["\u202eb", 1, None]}) == {"a": ["b", 1, None]}
    schema = {
        "description": "x\u200b",
        "properties": {"description": {"title": "y\u200b", "enum": ["z\u200b"]}},
    }
    assert clean_schema(schema) == {
        "description": "x",
        "properties": {"description": {"title": "y", "enum": ["z\u200b"]}},
    }
