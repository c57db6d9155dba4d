"""A model with random scores, held to a grammar, writes only calls that are taken as they are."""

import random

import pytest

from handrail import plugins
from handrail.dialects import dialect
from handrail.grammars import grammar
from tests.grammars.random_model import (
    Vocabulary,
    corpus_tools,
    problem_of,
    write_answer,
)
from tests.support.effort import IS_LONG, examples

pytest.importorskip("llguidance")
ANSWERS = examples(3, 300)
FAMILIES = sorted(plugins.PROMPTS)
if not IS_LONG:
    # one of those that write alike
    FAMILIES = sorted(
        {
            (family.syntax, family.template.single, family.template.opens): name
            for name in FAMILIES
            for family in [dialect(name)]
        }.values()
    )


def pick_tools(family, seed: int):
    """Return a few tools that a grammar can say in full."""
    some = random.Random(seed).sample(corpus_tools(), 8)
    lossy = {sentence.partition(":")[0] for sentence in grammar(some, family).lossy}
    places = {place.partition(".")[0] for place in lossy}
    return [tool for tool in some if tool.name not in places and tool.name not in lossy]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_call_of_a_random_model_is_taken_without_repair(name):
    family = dialect(name)
    vocabulary = Vocabulary(family)
    calls = 0
    for seed in range(ANSWERS):
        tools = pick_tools(family, seed)
        choices = ["auto", "required", "required", tools[0].name]
        choice = choices[seed % len(choices)]
        made = grammar(tools, family, tool_choice=choice, parallel=seed % 3 > 0)
        text = write_answer(made.mask(vocabulary), vocabulary, seed)
        if text is None:
            continue
        turn = family.decode(text, tools, opened=made.opened)
        assert [problem_of(call, tools) for call in turn.calls] == [""] * len(
            turn.calls
        )
        assert choice == "auto" or turn.calls, text
        if choice == tools[0].name:
            assert [call.name for call in turn.calls] == [choice]
        if seed % 3 == 0:
            assert len(turn.calls) <= 1
        calls += len(turn.calls)
    assert calls


def test_no_call_is_written_where_none_may_be_made():
    family = dialect("hermes")
    tools = pick_tools(family, 1)
    vocabulary = Vocabulary(family)
    mask = grammar(tools, family, tool_choice="none").mask(vocabulary)
    for seed in range(5):
        text = write_answer(mask, vocabulary, seed)
        assert text is not None
        assert not family.decode(text, tools).calls
