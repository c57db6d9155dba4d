"""What 52 forms of open models' answers are read as, over the cases that three public servers agree on or dispute.

Every row is read whole, one character at a time, in random pieces and in its own pieces, always with the same end.
A row whose sources disagree is contested: it must lose no word and invent no call. Every other one is read as it says.
"""

import json
import random
import re

import pytest

import handrail as hr
from handrail.calls import ToolCall
from handrail.messages import ArgumentsDelta, ReasoningDelta, TextDelta, Turn
from handrail.parsing import jsontext
from handrail_openmodels.prompts import reader as texts
from handrail_openmodels.prompts.parameter_calls import ParameterCalls
from handrail_openmodels.prompts.syntaxes import SYNTAXES
from tests.support.corpus import rows

ROWS = rows("dialects/parse_cases.jsonl")

FAMILIES = {
    "cohere_command_a": "command-a", "cohere_command_r7b": "command-r7b", "cohere_command_r_plus": "command-r",
    "deepseek_r1": "deepseek-r1", "deepseek_v3": "deepseek-v3", "deepseek_v31": "deepseek-v3.1",
    "deepseek_v32_dsml": "deepseek-v3.2", "deepseek_v4_dsml": "deepseek-v4", "ernie45": "ernie4.5",
    "firefunction_v2": "firefunction-v2", "functionary_v31_llama": "functionary-v3.1",
    "functionary_v32": "functionary-v3.2", "generic_json": "generic-json", "generic_no_tools": "plain",
    "glm4_xml": "glm4", "granite_20b_fc": "granite-20b", "harmony_gpt_oss": "harmony", "hunyuan_a13b": "hunyuan",
    "kimi_k2": "kimi-k2", "kimi_k3": "kimi-k3", "lfm2_pythonic": "lfm2", "ling3_xml": "ling3",
    "llama3_json": "llama3", "llama4_pythonic": "llama4", "llama_builtin_python_tag": "llama3",
    "llama_python_tag_json": "llama3", "llama_pythonic": "llama3-pythonic", "minicpm5_xml": "minicpm5",
    "minimax_m2_xml": "minimax-m2", "minimax_m3": "minimax-m3", "mistral_v11": "mistral", "mistral_v3_list": "mistral",
    "nemotron_nano_v2": "nemotron-nano-v2", "olmo3_pythonic": "olmo3", "phi4_mini": "phi4-mini",
    "qwen3_coder_xml": "qwen3-coder", "seed_oss_xml": "seed-oss",
}  # fmt: skip

CORE = {
    "llama3_json", "llama_python_tag_json", "llama_builtin_python_tag", "llama_pythonic", "mistral_v3_list",
    "mistral_v11", "hermes",
}  # fmt: skip

WITHOUT_TYPES = {"minimax_m2_xml", "step3", "qwen3_coder_xml"}
"""Dialects whose values have no types without a schema: of rows without tools, text values are compared only."""

CONTESTED_SINCE = {
    # The template escapes nothing, so a model that means `&lt;` writes just that, and decoding changes what it writes
    # to a file. vLLM stopped decoding for this family (vllm-project/vllm#45025); smg, the row's source, for Qwen's
    # (smg-project/smg#1899), and its row qwen3_coder_xml-f334dbee wants numeric entities as they stand.
    "minimax_m2_xml-f580134a": "entities in a value are decoded",
    # The source trims every value. The template puts one line break on each side and nothing else, the row
    # qwen3_coder_xml-b7a9ff6c of llama.cpp wants the indentation of the first line, and vLLM mended the trimming as a
    # fault, since an edit no longer found its place (vllm-project/vllm#48753, #48846).
    "qwen3_coder_xml-ef759abb": "spaces around a value are trimmed",
}
"""Rows that the corpus gives as agreed, and what they demand: their own sources have withdrawn it, or contradict it."""


class Tool:
    """As much of a tool as a reader looks at."""

    def __init__(self, definition):
        function = definition.get("function", definition)
        self.name = function["name"]
        self.description = function.get("description", "")
        self.parameters = function.get("parameters") or {}


def tools_of(row):
    return None if row["tools"] is None else [Tool(each) for each in row["tools"]]


def syntax_of(row):
    return SYNTAXES[FAMILIES.get(row["dialect"], row["dialect"])]


def test_every_dialect_of_the_corpus_is_found_by_name():
    for name in {FAMILIES.get(row["dialect"], row["dialect"]) for row in ROWS}:
        assert hr.dialect(name).name == name


def opened_of(row):
    """Return the beginning of the answer that the row's prompt holds."""
    syntax, prompt = syntax_of(row), row.get("prompt_ends_with") or ""
    if continued := row.get("continue_final_message"):
        said = row["history"][-1]
        reasoning = said["reasoning"] if row["reasoning"] == "extract" else ""
        until = said["content"] if continued == "content" else reasoning
        begun = texts.write_answer(
            syntax, Turn(text=said["content"], reasoning=reasoning)
        )
        return begun[: begun.rindex(until) + len(until)]
    marks = [
        ">>>",
        *(
            (syntax.reasoning.opens.strip(), syntax.reasoning.closes)
            if syntax.reasoning
            else ()
        ),
    ]
    found = [prompt.index(mark) for mark in marks if mark in prompt]
    return prompt[min(found) :] if found else ""


def read(row, pieces=None):
    """Return the turn and the deltas of a row, fed in these pieces."""
    reasoning = row.get("reasoning") != "leave_in_text"
    reader = texts.make_reader(
        syntax_of(row), tools_of(row), opened=opened_of(row), reasoning=reasoning
    )
    deltas = [
        delta
        for piece in pieces or [row["model_output_text"]]
        for delta in reader.feed(piece)
    ]
    return reader.close(), deltas


def runnable(turn):
    """Return the calls that admission would let run, with their arguments."""
    parsed = [
        (call, jsontext.parse(call.arguments, finish=turn.finish))
        for call in turn.calls
    ]
    return [
        (call.name, read.value)
        for call, read in parsed
        if isinstance(read, jsontext.Parsed)
    ]


def well_formed(turn):
    """Return the calls whose arguments are JSON of any kind: what a parser is asked for, before any admission."""
    found = []
    for call in turn.calls:
        try:
            found.append((call.name, json.loads(call.arguments)))
        except ValueError:
            continue  # told with its broken text; admission tells the model
    return found if turn.finish == "calls" else []


def in_random_pieces(text, chance):
    at = 0
    while at < len(text):
        length = chance.choice((1, 2, 3, 7, 20))
        yield text[at : at + length]
        at += length


# ---------------------------------------------------------------------- what a row demands


def complaints(row):
    """Return what the turn of a row lacks; empty if nothing."""
    turn, _ = read(row)
    expected = row["expected"]
    if "partial_spec" in expected:
        return list(against_facts(row, turn, expected["partial_spec"]))
    if "error" in expected:
        return [f"runs {runnable(turn)}"] if runnable(turn) else []
    return list(against_all(row, turn, expected))


def against_all(row, turn, expected):
    text = unfenced(turn.text) if row.get("response_schema") else turn.text
    if expected["text"] is not None and text.strip() != expected["text"].strip():
        yield f"text {text!r}, not {expected['text']!r}"
    if turn.reasoning.strip() != expected["reasoning"].strip():
        yield f"reasoning {turn.reasoning!r}, not {expected['reasoning']!r}"
    if [call.name for call in turn.calls] != [
        call["name"] for call in expected["calls"]
    ]:
        yield f"calls {turn.calls}"
        return
    for call, wanted in zip(turn.calls, expected["calls"], strict=True):
        if wanted.get("id") and call.id != wanted["id"]:
            yield f"id {call.id!r}, not {wanted['id']!r}"
        if row["is_partial"]:
            said, hoped = squeezed(call.arguments), squeezed(wanted["arguments_text"])
            if not (said.startswith(hoped) or hoped.startswith(said)) or runnable(turn):
                yield f"arguments {call.arguments!r}, not {wanted['arguments_text']!r}"
        elif wanted["arguments"] is not None:
            value = (
                dict(runnable(turn)).get(call.name)
                if len(turn.calls) == 1
                else json.loads(call.arguments)
            )
            if not agrees(row, value, wanted["arguments"]):
                yield f"arguments {call.arguments!r}, not {wanted['arguments']!r}"


def agrees(row, value, wanted):
    if row["id"] == "deepseek_v3-4a961666":  # the row states one of two arguments
        return value.items() >= wanted.items()
    return value == wanted


def against_facts(row, turn, facts):
    calls = well_formed(turn)
    if facts["calls_n"] is not None and len(calls) != facts["calls_n"]:
        yield f"{len(calls)} calls, not {facts['calls_n']}: {turn}"
        return
    # the row knows two outcomes: its calls, or its text
    if facts["calls_n"] is None and not calls:
        if "text" in facts and turn.text.strip() != facts["text"].strip():
            yield f"text {turn.text!r}"
        return
    for position, name in facts["names"]:
        if position >= len(calls) or calls[position][0] != name:
            yield f"call {position} is not {name!r}"
    for fact in facts["arguments_at"]:
        value = calls[fact["call"]][1]
        for step in fact["path"]:
            value = value[step]
        if (
            row["tools"] is None
            and row["dialect"] in WITHOUT_TYPES
            and not isinstance(fact["value"], str)
        ):
            continue
        if value != fact["value"]:
            yield f"{fact['path']} is {value!r}, not {fact['value']!r}"
    # These rows know the text before the first call only; we keep what comes after as well.
    if (
        "text" in facts
        and facts["calls_n"] is not None
        and not turn.text.strip().startswith(facts["text"].strip())
    ):
        yield f"text {turn.text!r}, not {facts['text']!r}"


def unfenced(text):
    """Return an answer that had to be JSON without the fence around it, which is for the one who asked for JSON."""
    return re.sub(r"\A\s*```(?:json)?\n(.*?)\n```\s*\Z", r"\1", text, flags=re.DOTALL)


def squeezed(text):
    return re.sub(r"\s+", "", text)


# ---------------------------------------------------------------------- tests

CONTESTED = [row for row in ROWS if "contested" in row]
AGREED = [
    row for row in ROWS if "contested" not in row and row["id"] not in CONTESTED_SINCE
]


def test_every_agreed_row_is_read_as_it_demands():
    found = {row["id"]: wrong for row in AGREED if (wrong := complaints(row))}
    assert not found, json.dumps(found, indent=1, ensure_ascii=False)
    assert len(AGREED) == 426


@pytest.mark.parametrize("id", CONTESTED_SINCE)
def test_a_row_contested_since_gives_its_values_as_they_stand_between_their_marks(id):
    [row] = [row for row in ROWS if row["id"] == id]
    assert "contested" not in row and row["dialect"] not in CORE and complaints(row)
    [(_, arguments)] = runnable(read(row)[0])
    marked = r'<parameter(?: name="|=)(\w+)"?>(.*?)</parameter>'
    written = dict(re.findall(marked, row["model_output_text"], re.DOTALL))
    assert arguments.keys() == written.keys()
    for key, value in arguments.items():
        # Qwen's template puts a line break on each side
        assert written[key] in (value, f"\n{value}\n", f"\n{value}")


def test_control_tokens_are_in_a_text_only_where_an_agreed_row_demands_them():
    for row in AGREED:
        text = read(row)[0].text
        expected = row["expected"].get("partial_spec", row["expected"])
        demanded = expected.get("text") or ""
        shown = [token for token in syntax_of(row).tokens if token in text]
        assert all(token in demanded for token in shown), row["id"]


TOKENS_OF_CONTESTED = {
    "a call that holds no name": {
        "mistral_v11-c13edb7e", "mistral_v11-4dcdc188", "mistral_v11-b1c42ae4", "mistral_v11-39048b16",
        "mistral_v3_list-c92504e6",
    },
    "a call that is broken": {
        "cohere_command_r7b-4e5fbb8b", "deepseek_v3-6b2b6c08", "hermes-859368e3", "llama_python_tag_json-fac08e6a",
        "mistral_v3_list-12f6583a", "longcat-d42770ae",
    },
    "a call that breaks off": {
        "qwen3_coder_xml-82238c62", "qwen3_coder_xml-ecd4f233", "step3-950793f1",
    },
    "a mark and no call": {"hermes-26d7707a", "internlm2-88252fac"},
}  # fmt: skip
"""Contested rows whose text keeps control tokens, as agreed rows of other families demand it of broken calls."""


def test_control_tokens_are_in_the_text_of_contested_rows_for_the_listed_reasons():
    shown = {
        row["id"]
        for row in CONTESTED
        if any(token in read(row)[0].text for token in syntax_of(row).tokens)
    }
    assert shown == set().union(*TOKENS_OF_CONTESTED.values())


@pytest.mark.parametrize(
    "how", ["character by character", "random pieces", "its own pieces"]
)
def test_every_row_ends_the_same_however_it_is_cut(how):
    chance = random.Random(20261121)
    for row in ROWS:
        text = row["model_output_text"]
        cuts = {
            "character by character": [list(text)],
            "random pieces": [list(in_random_pieces(text, chance)) for _ in range(3)],
            "its own pieces": [row["streaming_chunks"]]
            if row.get("streaming_chunks")
            else [],
        }[how]
        whole, _ = read(row)
        for pieces in cuts:
            turn, deltas = read(row, pieces)
            assert "".join(pieces) == text
            assert turn == whole, row["id"]
            assert given_is_kept(turn, deltas), row["id"]


def given_is_kept(turn, deltas):
    """Whether the deltas, joined, are how the turn begins, in every part of it."""
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    reasoning = "".join(
        delta.text for delta in deltas if isinstance(delta, ReasoningDelta)
    )
    arguments = ["" for _ in turn.calls]
    for delta in deltas:
        if isinstance(delta, ArgumentsDelta):
            arguments[delta.index] += delta.text
            if turn.calls[delta.index].name != delta.name:
                return False
    begun = [
        call.arguments.startswith(said)
        for call, said in zip(turn.calls, arguments, strict=True)
    ]
    return (
        turn.text.startswith(text)
        and turn.reasoning.startswith(reasoning)
        and all(begun)
    )


@pytest.mark.parametrize("row", CONTESTED, ids=lambda row: row["id"])
def test_a_contested_row_loses_no_word_and_invents_no_call(row):
    turn, _ = read(row)
    text = row["model_output_text"]
    kept = " ".join(
        [
            turn.text,
            turn.reasoning,
            *(f"{call.id} {call.name} {call.arguments}" for call in turn.calls),
        ]
    )
    assert not set(words(text)) - set(words(kept)) - {"name", "arguments", "parameters"}
    for name, arguments in runnable(turn):
        assert name in text
        assert all(
            str(value) in text
            for value in arguments.values()
            if isinstance(value, str | int)
        )


def words(text):
    for token in sorted(
        (token for syntax in SYNTAXES.values() for token in syntax.tokens),
        key=len,
        reverse=True,
    ):
        text = text.replace(token, " ")
    return re.findall(r"\w+", text.replace("functools", " "))


def test_an_answer_that_is_cut_anywhere_runs_only_what_the_whole_one_runs():
    for row in AGREED:
        if row["tools"] is None and row["dialect"] not in CORE:
            # one form twice: enough of each dialect is left, and this test cuts everywhere
            continue
        whole, _ = read(row)
        for end in range(len(row["model_output_text"])):
            cut, _ = read(row, [row["model_output_text"][:end]])
            assert runnable(cut) == runnable(whole)[: len(runnable(cut))], (
                row["id"],
                end,
            )


def test_a_call_that_breaks_off_never_runs_whatever_the_server_says():
    [row] = [row for row in ROWS if row["expected"].get("error")]
    for said in (None, "stop", "calls", "length", "error"):
        reader = texts.make_reader(syntax_of(row), tools_of(row))
        reader.feed(row["model_output_text"])
        turn = reader.close(said)
        assert turn.calls and turn.finish in ("length", "error")
        assert not runnable(turn)


def test_damaged_names_are_mended_where_a_known_token_or_prefix_leaked_and_never_guessed():
    for row in rows("malformed/tool_names.jsonl"):
        tools = [Tool({"name": name}) for name in row["tools"]]
        text = json.dumps({"name": row["raw_name"], "arguments": {}})
        [call] = texts.read_answer(
            SYNTAXES["hermes"], f"<tool_call>{text}</tool_call>", tools
        ).calls
        assert call.name == (row["intended"] or row["raw_name"])


# ---------------------------------------------------------------------- gold calls, written and read again

GOLD = [
    row
    for name in ("bfcl/single_turn.jsonl.gz", "acebench/single_turn.jsonl.gz")
    for row in rows(name)
    if row["gold_calls"]
]
CALLING = sorted(
    name for name, syntax in SYNTAXES.items() if syntax.formats or syntax.channels
)
DISTINCT = list({id(SYNTAXES[name]): name for name in reversed(CALLING)}.values())

UNTYPED = {"simple_java_62": "two parameters have no type, so a bare `20.5` stays text"}


def gold_turn(row):
    """Return the tools of a row, and its gold calls as a turn."""
    calls = [
        ToolCall("", call["name"], json.dumps(call["arguments"], ensure_ascii=False))
        for call in row["gold_calls"]
    ]
    return [Tool(each) for each in row["tools"]], Turn(calls=calls, finish="calls")


def called(turn):
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


@pytest.mark.parametrize("name", DISTINCT)
def test_every_gold_call_is_written_and_read_again_by_every_family(name):
    syntax, lost, checked = SYNTAXES[name], [], 0
    bare = any(
        isinstance(shape, ParameterCalls) and not shape.parameter.attributes.strip()
        for shape in shapes_of(syntax)
    )
    for position, row in enumerate(GOLD):
        tools, turn = gold_turn(row)
        if bare and (
            row.get("gold_valid_against_schema") is False or row["id"] in UNTYPED
        ):
            # values without marks of their own have the schema's types: gold that breaks it cannot come back
            continue
        text = texts.write_answer(syntax, turn, tools)
        back = texts.read_answer(syntax, text, tools)
        if (called(back), back.text, back.finish) != (called(turn), "", "calls"):
            lost.append((row["id"], text))
        # a sample, one character at a time: 46 rows for each family
        if position % 40 == 7:
            reader = texts.make_reader(syntax, tools)
            for character in text:
                reader.feed(character)
            assert reader.close() == back, row["id"]
        checked += 1
    assert lost == []
    assert checked > 1_700


def shapes_of(syntax):
    return [
        *syntax.formats,
        *(
            [syntax.channels.inside]
            if syntax.channels and syntax.channels.inside
            else []
        ),
    ]
