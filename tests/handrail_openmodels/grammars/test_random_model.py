"""A model with random scores, held to a grammar, writes only calls that are taken as they are."""

import pytest

from handrail.dialects import dialect
from handrail_openmodels import parts
from handrail_openmodels.grammars import grammar
from tests.handrail_openmodels.grammars.random_model import (
    Vocabulary,
    pick_tools,
    try_answer,
    write_answer,
)
from tests.support.effort import IS_LONG, examples

pytest.importorskip("llguidance")
ANSWERS = examples(4, 320)
FAMILIES = sorted(parts.PROMPTS)
if not IS_LONG:
    # one of those that write alike
    FAMILIES = sorted(
        {
            (family.syntax, family.template.single, family.template.opens): name
            for name in FAMILIES
            for family in [dialect(name)]
        }.values()
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_call_of_a_random_model_is_taken_without_repair(name):
    family = dialect(name)
    vocabulary = Vocabulary(family)
    tried = [try_answer(family, vocabulary, seed) for seed in range(ANSWERS)]
    ended = [trial for trial in tried if trial is not None]
    assert [trial for trial in ended if trial.problems] == []
    assert sum(trial.calls for trial in ended)


def test_no_call_is_written_where_none_may_be_made():
    family = dialect("hermes")
    tools = pick_tools(family, 1)
    vocabulary = Vocabulary(family)
    mask = grammar(tools, family, tool_choice="none").mask(vocabulary)
    for seed in range(5):
        text = write_answer(mask, vocabulary, seed)
        assert text is not None
        assert not family.decode(text, tools).calls
