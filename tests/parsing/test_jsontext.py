"""What counts as a call's arguments, what is mended, and what is refused."""

import json
import string
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.errors import Code, Failure
from handrail.parsing import json_repair, strictjson
from handrail.parsing.jsontext import REPAIRS, NotJson, Parsed, loads, parse, split


def read(text: str, **options) -> Parsed:
    """Return what `parse` reads, and fail with its own words where it refuses."""
    outcome = parse(text, **options)
    assert isinstance(outcome, Parsed), outcome
    return outcome


def refused(text: str, **options) -> Failure:
    outcome = parse(text, **options)
    assert isinstance(outcome, Failure), outcome
    return outcome


# ---------------------------------------------------------------------- strict text


@pytest.mark.parametrize(("text", "value"), [
    ("{}", {}),
    ('{"a": 1}', {"a": 1}),
    # white space of JSON itself is no deviation
    (' \t\r\n{"a": 1}\n', {"a": 1}),
    ('{"": [1, -2.5e3, true, null]}', {"": [1, -2500.0, True, None]}),
    ('{"a": "it\'s // no /* comment */ {,}"}', {"a": "it's // no /* comment */ {,}"}),
    # text that spells JSON stays text: the schema decides
    ('{"a": "[1, 2]"}', {"a": "[1, 2]"}),
    ('{"城市": "\\u5317\\u4eac 😀"}', {"城市": "北京 😀"}),
    # a surrogate pair is one character
    ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ('{"a": "“quoted” and ：，"}', {"a": "“quoted” and ：，"}),
    ('{"a": 12345678901234567890}', {"a": 12345678901234567890}),
])  # fmt: skip
def test_strict_objects_are_read_as_they_stand(text, value):
    assert read(text) == read(text, allow_repair=False) == Parsed(value, ())


# ---------------------------------------------------------------------- what is mended

LOSSLESS = [
    ("", {}, ("empty_text",)),
    ("  ", {}, ("empty_text",)),
    ('\ufeff{"a": 1}', {"a": 1}, ("byte_order_mark",)),
    ('{"a":\u00a01,\u200b"b": 2}', {"a": 1, "b": 2}, ("unusual_space",)),
    ('```json\n{"a": 1}\n```', {"a": 1}, ("code_fence",)),
    ('```{"a": 1}```\n', {"a": 1}, ("code_fence",)),
    ('"{\\"a\\": \\"b\\\\nc\\"}"', {"a": "b\nc"}, ("doubly_encoded",)),
    ("'{\"a\": 1}'", {"a": 1}, ("single_quotes", "doubly_encoded")),
    ('{"a": [1, 2, ], }', {"a": [1, 2]}, ("trailing_comma",)),
    ('{, "a": 1}', {"a": 1}, ("leading_comma",)),
    ('{"a": 1, // one\n"b": 2 /* two */}', {"a": 1, "b": 2}, ("comment",)),
    ("{'a': 'b', 'c': 'say \"hi\"'}", {"a": "b", "c": 'say "hi"'}, ("single_quotes",)),
    ("{'a': 'it\\'s'}", {"a": "it's"}, ("single_quotes",)),
    ("{“a”: “b”, ‘c’: 「d」}", {"a": "b", "c": "d"}, ("typographic_quotes",)),
    ("{＂a＂：1，＂b＂：［2］}", {"a": 1, "b": [2]}, ("typographic_quotes", "full_width")),
    ('{"a": True, "b": None, "c": [False]}', {"a": True, "b": None, "c": [False]}, ("python_literal",)),
    ('{a: 1, $b_2: 2, c-d.e: 3, 名: 4}', {"a": 1, "$b_2": 2, "c-d.e": 3, "名": 4}, ("unquoted_key",)),
    ('{"a": "x\ty\nz"}', {"a": "x\ty\nz"}, ("control_character",)),
    # raw and escaped in one string
    ('{"a": "x\ty // \\n\\t"}', {"a": "x\ty // \n\t"}, ("control_character",)),
]  # fmt: skip

LOSSY = [
    ('{5: "a", null: "b"}', {"5": "a", "null": "b"}, ("literal_key",)),
    ("{`a´: `b`}", {"a": "b"}, ("backtick_quotes",)),
    ('{"a": "it\\\'s"}', {"a": "it's"}, ("escaped_apostrophe",)),
    ('{"a": "say "yes" to it", "b": 1}', {"a": 'say "yes" to it', "b": 1}, ("unescaped_quote",)),
    ("{'a': 'don't', 'b': 1}", {"a": "don't", "b": 1}, ("single_quotes", "unescaped_quote")),
    ('{"a": two words , "b": x}', {"a": "two words", "b": "x"}, ("unquoted_value",)),
    ('{"a": https://x.org/?q=1, "b": 12:30}', {"a": "https://x.org/?q=1", "b": "12:30"}, ("unquoted_value",)),
    ('{"a": 7ab-1, "b": 1/3, "c": O\'Hara}', {"a": "7ab-1", "b": "1/3", "c": "O'Hara"}, ("unquoted_value",)),
    ('{"a": .5, "b": -5., "c": +5, "d": 5e}', {"a": 0.5, "b": -5.0, "c": 5, "d": 5}, ("number_form",)),
    ('{"a": 1 "b": [2 3]\n"c": [{}{}]}', {"a": 1, "b": [2, 3], "c": [{}, {}]}, ("missing_comma",)),
    ('{"a": b "c": 1}', {"a": "b", "c": 1}, ("unquoted_value", "missing_comma")),
    ('{"a": "b""c": 1}', {"a": "b", "c": 1}, ("missing_comma",)),
    ('{"a": 1,, "b": [, 2]}', {"a": 1, "b": [2]}, ("extra_comma",)),
    ('{"a" "b", "c": 1}', {"a": "b", "c": 1}, ("missing_colon",)),
    ('{"a": [1, 2, ...], ... }', {"a": [1, 2]}, ("ellipsis",)),
    ('{"a": 1, # one\n"b": 2}', {"a": 1, "b": 2}, ("hash_comment",)),
    ('{{"a": {{"b": 1}}}}', {"a": {"b": 1}}, ("double_braces",)),
    ('{```json\n{"a": 1}\n```}', {"a": 1}, ("double_braces",)),
    ('{"a": [1}}', {"a": [1]}, ("wrong_bracket",)),
    ('{\\"a\\": \\"b \\\\\\"c\\\\\\"\\"}', {"a": 'b "c"'}, ("escaped_text",)),
    ('{\\n  \\"a\\": \\"b\\",\\n  \\"c\\": 1\\n}', {"a": "b", "c": 1}, ("escaped_text",)),
    # only the quotes were escaped
    ('{\\"a\\": \\"b \\\\"c\\\\"\\"}', {"a": 'b "c"'}, ("escaped_text",)),
    ('{"a": "b",\\n "c": \\n[1]\\n\\n}', {"a": "b", "c": [1]}, ("escaped_space",)),
    ('{"a": "b"\\n}\\n', {"a": "b"}, ("escaped_space",)),
    ('{"a": \\"b c\\", "d": [\\"\\"]}', {"a": "b c", "d": [""]}, ("escaped_quotes",)),
    ('```json\n{"a": 1}', {"a": 1}, ("open_fence",)),
    ('submit({"a": 1});', {"a": 1}, ("call_wrapper",)),
    ('Here you are: {"a": 1}', {"a": 1}, ("text_before",)),
    ('{"a": 1}\n\nIs there anything else?', {"a": 1}, ("text_after",)),
    ('{"a": 1}<|im_end|>', {"a": 1}, ("text_after",)),
    ('Here you are:\n\n```json\n{"a": 1}\n```\n', {"a": 1}, ("text_before", "text_after")),
    ('{"a": 1} } ]', {"a": 1}, ("stray_brackets",)),
    ('{"a": [{"b": 1}], "c": {}}}', {"a": [{"b": 1}], "c": {}}, ("stray_brackets",)),
    ('{"a": 1}\n{ "a": 1 }{"a":1}', {"a": 1}, ("identical_repeats",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "repairs"), [*LOSSLESS, *LOSSY])
def test_a_deviation_is_mended_under_its_name(text, value, repairs):
    assert read(text) == Parsed(value, repairs)


@pytest.mark.parametrize(("text", "value", "repairs"), LOSSLESS)
def test_a_write_takes_what_has_one_reading(text, value, repairs):
    assert read(text, lossy=False) == Parsed(value, repairs)


@pytest.mark.parametrize("text", [text for text, _, _ in LOSSY])
def test_a_write_takes_no_guess(text):
    assert read(text).lossy
    assert refused(text, lossy=False).code == Code.BAD_JSON


@pytest.mark.parametrize("text", [text for text, _, _ in [*LOSSLESS, *LOSSY]])
def test_without_repair_nothing_but_json_is_read(text):
    assert refused(text, allow_repair=False).code == Code.BAD_JSON


def test_every_repair_of_the_table_is_shown_above():
    assert {name for _, _, repairs in [*LOSSLESS, *LOSSY] for name in repairs} == set(
        REPAIRS
    )


def test_the_name_of_a_refused_guess_and_its_place_are_told():
    failure = refused('{"a": 1,\n "b": Paris}', lossy=False)
    assert (
        "a text value without quotes, at line 2, column 7 (offset 15), where 'Paris}' stands"
        in failure.message
    )
    assert "double quotes" in failure.suggestion


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("finish", ["length", "refused", "error"])
@pytest.mark.parametrize("text", ['{"a": 1}', "", '{"a": "b'])
def test_a_call_counts_only_after_a_clean_end(text, finish):
    assert refused(text, finish=finish).code == Code.TRUNCATED_CALL
    assert split('{"a": 1}{"b": 2}', finish=finish) is None


@pytest.mark.parametrize("text", [
    '{',
    '{"a"',
    '{"a":',
    '{"a": tru',
    '{"a": -',
    '{"a": 1, ',
    '{"a": "b}',                    # the brace belongs to the string
    '{"a": "b\\"}',
    # cut within an escape, at the beginning of a name on its own line
    '{\n"a": [],\n"\\',
    '{"a": {"b": 1}',
    '{"a": 1, "b": [}',             # one bracket short, whichever it was
    '{"a": 1 // c }',               # the comment swallows the brace
    '{"a": 1 /* c }',
    "{'a': 'b",
    '```json\n{"a": 1',
    'Here you are: {"a": [1',
    '{"a": 1}{"b": ',               # the second object was meant as well
    '"{\\"a\\": 1',
    '[1, 2',
    '{"a": [' + "1, " * 100_000,     # too long to mend, yet known to be cut
    '{"a": "' + "b" * 300_000,
])  # fmt: skip
def test_what_is_open_at_the_end_is_never_closed(text):
    assert refused(text).code == Code.TRUNCATED_CALL


@pytest.mark.parametrize("text", [
    '{"a": "b, "c": "d"}',          # a quote is missing, before or behind the comma
    '{"a": b", "c": "d"}',
    '{a": 1, "c": "d"}',
    '{"a": "b"c"}',
    '{"a": "5" wide", "b": "6" high"}',
    '{"a": "say "yes", or no"}',    # the comma may part two members
    '{"a": """b"""}',               # Python's long string, or three strings
    '{""a"": ""b""}',
    "{'a': 'the dogs' bowl'}",
    '{“a": 1, “b”: 2}',             # paired over the next quote, this would be one name
    '{"a": "b" true}',
    '{"a" "b" "c" "d"}',
    '{"a": "b" + "c"}',
    '{"a": NaN}', '{"a": NaN,}', '{"a": -Infinity}', '{"a": [inf]}', '{"a": 1e999}', '{"a": 1e999,}',
    '{"a": 1, "a": 1}', "{'a': 1, \"a\": 2}", '{"a": {"b": 1, "b": 2}}',
    '{"a": "\\ud800"}', '{"a": "\ud800"}', '{"\\udc00": 1,}',
    '{"a": 05}', '{"a": 0x1F}', '{"a": 1_000}', '{"a": 1,000}',
    '{"a": TRUE}', '{"a": undefined}', '{"a": nil}',
    '{"a":}', '{"a": , "b": 1}', '{"a"}', '{: 1}', '{,}', '{...}', '{"a": ...}',
    '{"a": (1, 2)}', '{"a": f("b")}', '{"a": b{c}}', '{"a": x b: 1}', '{"a": 1; "b": 2}', '{"a" = 1}',
    # what a wrong escape means is anybody's guess
    '{"a": "C:\\dir"}', '{"a": "\\u12g4"}',
    # some readers drop the line break from a name, some keep it
    '{"a\n": 1}',
    # earlier than at the end, a bracket may as well be missing
    '{"a": [1}, "b": [2]}',
    '{"a": {]}',                     # an empty list, or an empty object
    '{"a": {"b": 1}, "c": 2}}',      # `c` may belong to the inner object
    '{"a": [北京，上海]}',            # one value or two
    # the tail of `"// b"`, whose first quote was lost, is no comment
    '{"a": 1,\n // b": 2\n}',
    # the same, with a quote escaped in its value
    '{"a": 1,\n "b": {\n  //": "x\\"y"\n }\n}',
    "{'a': 1,\n // b': 2\n}",
    # the string may have lost its quote before the line break
    '{"a": {"b": "one,\n      "//": "\\""}}',
    "{'a': 'one,\n \"b\": 2',\n 'c': 3}",
    '{"a": [12，345]}',              # one number or two
    '{"a": 1, "b": 2: "c": 3}',
    '{"a": 1}\nb: 2',
    '{"a": 1}{"b": 2}', '{"a": 1}, {"b": 2}', '{}{"a": 1}', '[]{"a": 1}', '{"a": 1}{"a": 1.0}', '{"a": 1}{"a": true}',
    '{"a": 1}, "b": 2}', '{"a": 1}, b: 2', '{"a": 1} b: 2', '"a": 1, {"b": 2}}', 'a: 1, {"b": 2}',
    'filter: {"a": 1}', 'callback {"a": 1}', '{"a": 1}tail', 'x(y=1, z={"a": 1})',
    'Take {"a": 1} or {"a": 2}', '/* {"a": 1}',
])  # fmt: skip
def test_what_has_no_single_reading_is_refused(text):
    assert refused(text).code == Code.BAD_JSON


@pytest.mark.parametrize(
    "text",
    ["[]", '[{"a": 1}]', '"a"', '"{a: 1}"', "5", "true", "None", "words", "}", "1,2"],
)
def test_arguments_are_one_object(text):
    failure = refused(text)
    assert failure.code == Code.BAD_JSON
    assert "must be a JSON object" in failure.message


@pytest.mark.parametrize(("text", "told"), [
    ('{"a": 1,\n  "b" 2}', "at line 2, column 6 (offset 14), where ' 2}' stands"),
    ('{"a": 1, "a": 2}', "the name 'a' appears twice in one object, at line 1, column 10 (offset 9)"),
    ('{"a": NaN}', "'NaN' is no JSON value, at line 1, column 7 (offset 6)"),
    ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits is longer than 500, at line 1, column 7"),
    ("[" * 100_000, "more than 100 brackets are nested, at line 1, column 101"),
    ('{"a": [1, 2', "a value is still open, at line 1, column 11 (offset 10), where '2' stands"),
    ('{"a": [1, ', "a list is still open, at line 1, column 7 (offset 6), where '[1, ' stands"),
    ('{"a": 1}{"b": 2}', "several objects stand in a row, at line 1, column 9"),
    ('{"a": "\\d"}', "a string holds an invalid \\escape, at line 1, column 7"),
])  # fmt: skip
def test_a_refusal_says_what_is_wrong_and_where(text, told):
    failure = refused(text)
    assert told in failure.message
    assert failure.suggestion.startswith(("Call again", "Make one call"))
    assert not failure.retryable  # the same text will not read better later


def test_long_text_is_read_strictly_or_not_at_all():
    long = "x" * json_repair.MAX_REPAIRED_CHARS
    assert read(json.dumps({"a": long})).value == {"a": long}
    assert refused(json.dumps({"a": long})[:-1] + ",}").code == Code.BAD_JSON
    assert refused('{"a": "' + "x" * strictjson.MAX_CHARS + '"}').code == Code.BAD_JSON


# ---------------------------------------------------------------------- strict values of any kind


@pytest.mark.parametrize("text", ["[1, 2]", '"a"', "1.5", "null", " [] ", '"{a:b}"'])
def test_the_strict_reader_takes_any_value(text):
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize(("text", "reason"), [
    ("", "open"),
    ("[1", "open"),
    ('"a', "open"),
    ("[1,]", "syntax"),
    ("\ufeff1", "syntax"),
    ("[NaN]", "non_finite"),
    ("-Infinity", "non_finite"),
    ("-1e999", "non_finite"),
    ('[{"a": 1, "a": 1}]', "duplicate_key"),
    ('"\\udc00"', "lone_surrogate"),
    ('["\udc00"]', "lone_surrogate"),
    ("9" * 501, "too_many_digits"),
    ("[" * 101 + "]" * 101, "too_deep"),
    ("[" * 100_000, "too_deep"),
    (" " * (strictjson.MAX_CHARS + 1), "too_long"),
])  # fmt: skip
def test_the_strict_reader_names_its_reason(text, reason):
    with pytest.raises(NotJson) as caught:
        loads(text)
    assert caught.value.reason == reason


def test_brackets_are_counted_by_depth_and_not_by_number():
    assert loads("[" * 100 + "]" * 100)
    assert len(loads("[" + ", ".join(["[]"] * 500) + "]")) == 500


# ---------------------------------------------------------------------- glued calls


@pytest.mark.parametrize(("text", "texts"), [
    ('{"a": 1}{"b": 2}', ['{"a": 1}', '{"b": 2}']),
    (' {"a": 1}\n\n{"b": 2} ', ['{"a": 1}', '{"b": 2}']),
    # a repeat counts once, however it is spaced
    ('{"a": 1}{"b": 2}{ "a":1 }', ['{"a": 1}', '{"b": 2}']),
    ('{"a": 1}{"a": 1}', ['{"a": 1}']),
    # equal to Python, not to JSON
    ('{"a": 1}{"a": 1.0}', ['{"a": 1}', '{"a": 1.0}']),
    ("{}{}", ["{}"]),
    ('{}{"a": 1}', None),                # what streams begin with, or a call of its own
    ('{"a": 1}', None),                  # one object is nothing to split
    ('{"a": 1}, {"b": 2}', None),
    ('{"a": 1}{"b": 2', None),
    ('{"a": 1}{"b": NaN}', None),
    ('{"a": 1}{b: 2}', None),
    ('{"a": 1}[]', None),
    ("", None),
    ("[" * 100_000, None),
])  # fmt: skip
def test_glued_objects_become_one_text_each(text, texts):
    assert split(text) == texts


# ---------------------------------------------------------------------- laws

TEXT = st.text(max_size=12)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(
    allow_nan=False, allow_infinity=False
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
# Mostly the characters that mean something to the reader: plain random text almost never looks like an object.
PIECES = [
    *"{}[]\":,'`\\/*#.-+()ax0 5\n\t…“”‘’：，",
    '{"',
    '":',
    '", "',
    '"}',
    "true",
    "None",
    "NaN",
    "```",
    "\\u",
]
LOOKALIKES = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=25).map(
    "".join
)


def same(one, other) -> bool:
    """Equal as JSON: 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]))
def test_a_strict_object_comes_back_equal(value, ascii_only, indent):
    outcome = read(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert same(outcome.value, value)
    assert outcome.repairs == ()


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_no_beginning_of_an_object_is_taken_for_the_whole(
    value, ascii_only, indent, data
):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    cut = data.draw(st.integers(1, len(text) - 1))
    assert refused(text[:cut]).code == Code.TRUNCATED_CALL


@given(
    LOOKALIKES
    | st.text()
    | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
@example("{" * 50_000 + "}" * 50_000)
@example('{"a":[' + "1 " * 5_000 + "]}")
def test_no_text_raises_and_no_value_is_silent(text):
    outcome = parse(text)
    split(text)
    if isinstance(outcome, Failure):
        assert outcome.code in (Code.BAD_JSON, Code.TRUNCATED_CALL)
        # the message itself can be sent
        json.dumps(outcome.as_json(), ensure_ascii=False).encode()
        return
    assert set(outcome.repairs) <= set(REPAIRS)
    again = read(json.dumps(outcome.value, ensure_ascii=False))
    assert same(again.value, outcome.value)
    assert again.repairs == ()
    assert isinstance(parse(text, allow_repair=False), Parsed) == (not outcome.repairs)
    assert isinstance(parse(text, lossy=False), Parsed) == (not outcome.lossy)
    if not outcome.repairs:
        assert same(loads(text), outcome.value)


WORDS = st.text(string.ascii_letters + " ", min_size=1, max_size=6)


@given(
    st.dictionaries(
        WORDS,
        WORDS | st.integers() | st.lists(WORDS, max_size=2),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_an_object_that_lost_a_quote_is_refused(value, data):
    text = json.dumps(value)
    at = data.draw(
        st.sampled_from([place for place, char in enumerate(text) if char == '"'])
    )
    refused(text[:at] + text[at + 1 :])


@dataclass(frozen=True)
class Style:
    """One way of writing JSON that is not JSON, and still has one reading."""

    repair: str
    quotes: str = '""'
    comma: str = ","
    colon: str = ":"
    # what stands before each closing bracket of a container that is not empty
    end: str = ""
    words: tuple[str, str, str] = ("true", "false", "null")

    def write(self, value) -> str:
        """Spell `value`; every quote inside a string is escaped by number, so that only the outer ones are seen."""
        if isinstance(value, str):
            body = (
                json.dumps(value)[1:-1]
                .replace('\\"', "\\u0022")
                .replace("'", "\\u0027")
            )
            return self.quotes[0] + body + self.quotes[1]
        if isinstance(value, dict):
            inner = self.comma.join(
                f"{self.write(name)}{self.colon}{self.write(item)}"
                for name, item in value.items()
            )
            return "{" + inner + (self.end if value else "") + "}"
        if isinstance(value, list):
            return (
                "["
                + self.comma.join(map(self.write, value))
                + (self.end if value else "")
                + "]"
            )
        named = [
            word
            for known, word in zip((True, False, None), self.words, strict=True)
            if known is value
        ]
        return named[0] if named else json.dumps(value)


STYLES = [
    Style("single_quotes", quotes="''"),
    Style("typographic_quotes", quotes="“”"),
    Style("typographic_quotes", quotes="‘’"),
    Style("full_width", comma="， ", colon="："),
    Style("trailing_comma", end=" ,\n"),
    Style("comment", comma=" /* { */ ,", colon=": // don't ]\n"),
    Style("unusual_space", comma="\u3000,\u00a0", colon="\ufeff:"),
    Style("python_literal", words=("True", "False", "None")),
]


@given(OBJECTS, st.sampled_from(STYLES))
def test_every_lossless_style_has_the_value_that_was_written(value, style):
    outcome = read(style.write(value), lossy=False)
    assert same(outcome.value, value)
    assert set(outcome.repairs) <= {style.repair}


@given(
    OBJECTS,
    st.sampled_from(["\ufeff{}", "```json\n{}\n```", "```{}```", " // x\n{}/* y */"]),
)
def test_every_lossless_wrapping_has_the_value_that_was_wrapped(value, wrapping):
    outcome = read(wrapping.replace("{}", json.dumps(value)), lossy=False)
    assert same(outcome.value, value)
    assert outcome.repairs


@given(OBJECTS)
def test_a_doubly_encoded_object_has_its_value(value):
    assert same(read(json.dumps(json.dumps(value)), lossy=False).value, value)


flat_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["a: b", 'say "so"', "\\", "[{", 10**499, 10**500])
)


def write_object(members, ascii_only):
    """Write an object of these members, of which several may have one name."""
    written = ", ".join(
        f"{json.dumps(n, ensure_ascii=ascii_only)}: {v}" for n, v in members
    )
    return f"{{{written}}}"


written_members = st.recursive(
    flat_values.map(json.dumps),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.builds(
            write_object,
            st.lists(st.tuples(st.sampled_from(["a", "a:b"]), inner), max_size=3),
            st.just(True),
        ),
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "a:b", 'a"b', "北"]), written_members),
        max_size=4,
    ),
    st.booleans(),
)
def test_a_short_object_is_read_as_carefully_as_any_other(members, ascii_only):
    short = write_object(members, ascii_only)
    # white space around it changes nothing but the reader
    long = short + " " * strictjson.MAX_PLAIN_CHARS
    assert _read(short) == _read(long)


def _read(text):
    try:
        return repr(strictjson.loads(text))
    except strictjson.NotJson as error:
        return error.reason


@pytest.mark.parametrize(("text", "reason"), [
    ('{"a": 1, "a": 2}', "duplicate_key"),
    ('{"a": 1e999}', "non_finite"),
    ('{"a": -1e999}', "non_finite"),
    ('{"a": {"b": 1, "b": 2}}', "duplicate_key"),
    ('{"a": [1e999]}', "non_finite"),
    ('{"a": ["b:c"], "a": 1}', "duplicate_key"),
    ('{"a": {"b": "c:d", "b": 1}}', "duplicate_key"),
    ('{"a": "\\":", "a": ""}', "duplicate_key"),
    ('{"a": 1%s}' % ("0" * 500), "too_many_digits"),
    ('{"a": %s}' % ("[" * 101 + "]" * 101), "too_deep"),
    ('{"a": "\\ud800"}', "lone_surrogate"),
])  # fmt: skip
def test_the_quick_reader_lets_nothing_pass_that_the_careful_one_refuses(text, reason):
    assert _read(text) == reason
