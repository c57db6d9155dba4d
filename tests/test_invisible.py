"""Letters that nobody sees are escaped where a terminal would print them; what is meant stays the same."""

import json

from hypothesis import given
from hypothesis import strategies as st

from handrail.invisible import hides, json_text, printable

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
