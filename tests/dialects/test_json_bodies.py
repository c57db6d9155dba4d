"""JSON bodies of providers: read quickly, and as Python's reader reads them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.dialects.json_bodies import parse_body
from handrail.errors import ModelError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from(["\ud83d", 10**600, -0.0, 1e308]),
    lambda parts: st.lists(parts, max_size=3)
    | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=8,
)  # fmt: skip
ODD = st.sampled_from(
    ["", " ", "-0", "1e999", "01", '{"a":1,"a":2}', "[1,]", "\ufeff{}", "[" * 300 + "]" * 300,
     "1" * 5000, '"\ud800"', '"\\ud83d"', "NaN", "-Infinity", "nul", '"\t"', "1.0E+2", "\u2028{}"]
)  # fmt: skip


@given(text=VALUES.map(json.dumps) | ODD)
def test_a_body_is_read_as_pythons_reader_reads_it(text):
    try:
        expected = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        with pytest.raises(ModelError, match="cannot be read"):
            parse_body(text)
    else:
        assert repr(parse_body(text)) == repr(expected)
