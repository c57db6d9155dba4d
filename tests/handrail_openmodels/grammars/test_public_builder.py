"""Our structural tags beside those that xgrammar builds for the formats that both have.

Its modules of tags need pydantic alone, and are loaded without the rest of it, which needs torch.
"""

import importlib
import json
import sys
import types
from importlib.util import find_spec

import pytest

from handrail_openmodels.grammars import grammar
from tests.handrail_openmodels.grammars.test_forms import TOOLS, now

FORMATS = {
    "hermes": "qwen_3",
    "qwen3-coder": "qwen_3_coder",
    "qwen3.5": "qwen_3_5",
    "llama3": "llama",
    "kimi-k2": "kimi",
    "deepseek-v3.1": "deepseek_v3_1",
    "harmony": "harmony",
    "minimax-m2": "minimax",
    "glm4": "glm_4_7",
}
DIFFERENT = {
    # The template of GLM 4.5 and 4.6 has line ends around the arguments, that of 4.7 has none.
    "glm4": ("<tool_call>now\n", "\n</tool_call>"),
    # The template has one line end between the arguments and `</invoke>`, and none after the last `</invoke>` of
    # several: that one belongs to `</minimax:tool_call>`.
    "minimax-m2": ('<invoke name="now">\n', "\n</invoke>"),
    # The end is the mark at which the server stops, and no part of the answer.
    "harmony": (" to=functions.now<|channel|>commentary json<|message|>", ""),
}


@pytest.fixture(scope="module")
def builder():
    found = find_spec("xgrammar")
    if found is None:
        pytest.skip("xgrammar is not installed (pip install --no-deps xgrammar)")
    package = types.ModuleType("xgrammar")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["xgrammar"] = package
    yield importlib.import_module("xgrammar.builtin_structural_tag")
    for name in [name for name in sys.modules if name.partition(".")[0] == "xgrammar"]:
        del sys.modules[name]


def tags_of(form, name):
    """Yield beginning, style and end of every tag of a tool."""
    if isinstance(form, dict):
        content = form.get("content")
        if form.get("type") == "tag" and content and name in form["begin"]:
            yield form["begin"], content.get("style") or content["type"], form["end"]
        for inner in form.values():
            yield from tags_of(inner, name)
    elif isinstance(form, list):
        for inner in form:
            yield from tags_of(inner, name)


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("family", FORMATS)
def test_tags_are_those_of_the_public_builder(builder, family, choice):
    described = [
        {
            "type": "function",
            "function": {"name": tool.name, "parameters": tool.parameters},
        }
        for tool in TOOLS
    ]
    theirs = builder.get_model_structural_tag(
        FORMATS[family], tools=described, tool_choice=choice, reasoning="disabled"
    )
    made = grammar(TOOLS, family, tool_choice=choice, opened="<think></think>")
    (ours,) = set(tags_of(made.tags, now.name))
    published = set(tags_of(json.loads(theirs.model_dump_json()), now.name))
    if family in DIFFERENT:
        assert (ours[0], ours[2]) == DIFFERENT[family]
        assert {ours[1]} == {style for _, style, _ in published}
    else:
        assert ours in published


@pytest.mark.parametrize("family", FORMATS)
def test_every_tag_is_one_that_the_public_model_reads(builder, family):
    read = importlib.import_module("xgrammar.structural_tag").StructuralTag
    for choice in ("auto", "required", "none", "now"):
        for parallel in (True, False):
            made = grammar(TOOLS, family, tool_choice=choice, parallel=parallel)
            read.model_validate(made.tags)
