"""The forms of a grammar: each is what its reader takes."""

import itertools
import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.dialects import dialect
from handrail.messages import Turn
from handrail_openmodels import parts
from handrail_openmodels.grammars import grammar
from handrail_openmodels.prompts.chat_template import Opening


class Bytes:
    """A vocabulary of bytes alone, with an end."""

    def __init__(self) -> None:
        self.tokens = [*(bytes([each]) for each in range(256)), b"<end>"]
        self.eos_token_id = 256
        self.bos_token_id = None
        self.special_token_ids = [256]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


BYTES = Bytes()


@hr.tool(effect="read")
def find_flights(
    origin: str, stops: int = 0, cabin: str = "economy", dates: list[str] = []
) -> str:
    """Find flights."""
    return "none"


@hr.tool(effect="read")
def now() -> str:
    """Tell the time."""
    return "noon"


RATING = {
    "type": "object",
    "properties": {
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "mood": {"enum": ["good", "bad", None]},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 4}},
    },
    "required": ["stars"],
}
rate = hr.FunctionTool(lambda **given: "done", name="rate", parameters=RATING)
TOOLS = [find_flights, now, rate]
CALLS = [
    ("find_flights", {"origin": "北京"}),
    ("find_flights", {"origin": "a<b", "stops": 2, "dates": ["x", 'y "z"']}),
    ("now", {}),
    ("rate", {"stars": 3, "code": "AB-12", "share": 0.25, "mood": None}),
    ("rate", {"stars": 5, "mood": "bad", "notes": ["ab", "北"]}),
    ("rate", {"stars": 6}),
    ("rate", {"stars": 1, "code": "ab-12"}),
    ("rate", {"share": 0.5}),
    ("rate", {"stars": 1, "share": 1.5}),
    ("delete_all", {}),
]
FAMILIES = sorted(
    {
        (family.syntax, family.template.single): name
        for name in parts.PROMPTS
        if name != "react"  # its calls have a thought before them
        for family in [dialect(name)]
    }.values()
)
"""One of those that write alike."""


def accepts(matcher, text: str) -> bool:
    """Whether a grammar takes a whole text."""
    raw = list(text.encode())
    return matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting()


def matcher_of(made):
    """Return the grammar as llguidance reads it, over bytes."""
    llguidance = pytest.importorskip("llguidance")

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(BYTES))
    matcher = llguidance.LLMatcher(tokenizer, made.lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def write_calls(family, chosen, text=""):
    """Return an answer with these calls, whose ids are those that the family's prompts have."""
    calls = [
        hr.ToolCall(
            f"abcdefgh{number}", name, json.dumps(arguments, ensure_ascii=False)
        )
        for number, (name, arguments) in enumerate(chosen)
    ]
    if family.template.ids:
        ids = family.template.ids(calls)
        calls = [replace(call, id=ids[call.id]) for call in calls]
    return family.encode_answer(Turn(text, calls=calls), TOOLS)


@pytest.mark.parametrize("name", FAMILIES)
def test_several_valid_calls_are_taken_where_the_family_writes_several(name):
    family = dialect(name)
    matcher = matcher_of(grammar(TOOLS, family, opened=""))
    for first, second in itertools.product(CALLS[:5], repeat=2):
        written = write_calls(family, (first, second))
        taken = accepts(matcher.deep_copy(), written)
        assert taken == (not family.template.single), written


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_family_writes_of_a_valid_call_is_taken_and_of_others_refused(name):
    family = dialect(name)
    matcher = matcher_of(grammar(TOOLS, family, tool_choice="required", opened=""))
    for tool, arguments in CALLS:
        written = write_calls(family, [(tool, arguments)])
        known = next((each for each in TOOLS if each.name == tool), None)
        is_valid = known is not None and hasattr(
            known.checker.check(arguments), "arguments"
        )
        assert accepts(matcher.deep_copy(), written) == is_valid, written


def test_a_hundred_tools_make_a_grammar_once_until_the_set_changes():
    tools = hr.Toolset(
        [
            hr.FunctionTool(
                lambda **given: "", name=f"tool_{number}", parameters=RATING
            )
            for number in range(100)
        ]
    )
    first = hr.grammar(tools, "hermes")
    assert hr.grammar(tools, "hermes") is first
    tools.remove("tool_7")
    second = hr.grammar(tools, "hermes")
    assert "tool_7\\" in first.lark
    assert "tool_7\\" not in second.lark


def test_what_a_grammar_cannot_say_is_named():
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "anything": {},
            "word": {"type": "string", "pattern": "(?=a)b"},
        },
    }
    tool = hr.FunctionTool(lambda **given: "", name="label", parameters=schema)
    lossy = hr.grammar([tool], "hermes").lossy
    assert [each.partition(":")[0] for each in lossy] == [
        "label.tags",
        "label.anything",
        "label.word",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dialect": "openai-chat"}, "needs the form in which a family"),
        ({"dialect": "hermes", "tool_choice": "nobody"}, "no tool is there"),
        ({"dialect": "hermes", "output": int}, "or of `output`"),
    ],
)
def test_a_grammar_that_cannot_be_is_refused_in_one_sentence(arguments, words):
    with pytest.raises(hr.ConfigError, match=words):
        hr.grammar(TOOLS, **arguments)


def test_each_server_gets_its_own_field():
    made = hr.grammar(TOOLS, "hermes")
    tag = json.loads(made.fields("vllm")["structured_outputs"]["structural_tag"])
    assert tag == made.tags == made.fields("sglang")["response_format"]
    assert made.fields("llama.cpp") == {"grammar": f"%llguidance {{}}\n{made.lark}"}
    with pytest.raises(hr.ConfigError, match="no server 'tgi' is known"):
        made.fields("tgi")


def test_an_answer_of_a_form_has_a_grammar():
    matcher = matcher_of(hr.grammar(output=RATING))
    assert accepts(matcher.deep_copy(), '{"stars": 4}')
    assert not accepts(matcher.deep_copy(), '{"stars": 9}')


def test_without_the_extra_a_mask_names_it_and_the_texts_are_there():
    program = (
        "import sys\n"
        "sys.modules['llguidance'] = None\n"
        "import handrail as hr\n"
        "assert 'handrail_openmodels.grammars' not in sys.modules\n"
        "made = hr.grammar([], 'hermes')\n"
        "assert made.lark and made.tags\n"
        "try:\n"
        "    made.mask(object())\n"
        "except hr.ConfigError as error:\n"
        "    assert '[openmodels]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_several_sequences_are_masked_side_by_side_and_a_new_prompt_begins_anew():
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("llguidance")

    mask = hr.grammar([now], "hermes", tool_choice="required").mask(BYTES)
    written = list(b'<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    for prompt in ([1, 2, 3], [4]):
        for step in range(len(written) + 1):
            ids = numpy.array([prompt + written[:step]] * 2)
            scores = mask(ids, numpy.zeros((2, 257), dtype=numpy.float32))
            wanted = [*written, 256][step]
            assert (scores[:, wanted] == 0).all(), step
    with pytest.raises(hr.ModelError, match="not what the grammar allows"):
        mask.allowed([1])


@pytest.mark.parametrize("form", ["array", "list"])
def test_sequences_that_change_places_keep_their_own_state(form):
    """A beam search sorts its sequences after each step."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("llguidance")

    mask = hr.grammar([now, rate], "hermes", tool_choice="required").mask(BYTES)
    written = [
        list(f'<tool_call>\n{{"name": "{call}}}\n</tool_call>'.encode())
        for call in ('now", "arguments": {}', 'rate", "arguments": {"stars": 3}')
    ]
    for step in range(len(written[0])):
        order = (0, 1, 0) if step % 2 else (1, 0, 1)
        ids = [[7, 8, *written[each][:step]] for each in order]
        given = numpy.array(ids) if form == "array" else ids
        scores = mask(given, numpy.zeros((3, 257), dtype=numpy.float32))
        wanted = [written[each][step] for each in order]
        assert (scores[[0, 1, 2], wanted] == 0).all(), step
    # the prompt grows as a conversation does, and the mask begins with it
    scores = mask([[7, 8, *written[0], 9]], numpy.zeros((1, 257), dtype=numpy.float32))
    assert scores[0, written[0][0]] == 0


def test_every_family_has_its_opening_in_the_grammar():
    thinking = dialect("qwen3.5")
    assert thinking.template.head(Opening(None, ())) is not None
    matcher = matcher_of(hr.grammar([now], thinking))
    assert accepts(matcher.deep_copy(), "I know.\n</think>\n\nIt is noon.")
    assert not accepts(matcher.deep_copy(), "It is noon.")
