"""Each kind of conversation as each family's own chat template writes it; `template_cases` says where they differ."""

import json

import pytest

from handrail.messages import conversation_of
from tests.handrail_openmodels.prompts.template_cases import (
    DIFFERENCES,
    DIGESTS,
    FAMILIES,
    KINDS,
    difference_of,
    digest,
    prompt_of,
)

RECORDED = json.loads(DIGESTS.read_text())
CASES = [(dialect, kind) for dialect in FAMILIES for kind in KINDS]


def cases(*, wanted):
    return [
        pytest.param(dialect, kind, id=f"{dialect}: {kind}")
        for dialect, kind in CASES
        if (difference_of(dialect, kind) is not None) is wanted
    ]


@pytest.mark.parametrize(("dialect", "kind"), cases(wanted=False))
def test_a_prompt_is_the_one_of_the_family_s_own_template(dialect, kind):
    assert digest(prompt_of(dialect, kind)) == RECORDED[dialect][kind]


@pytest.mark.parametrize(("dialect", "kind"), cases(wanted=True))
def test_a_prompt_that_differs_on_purpose_loses_nothing(dialect, kind):
    prompt = prompt_of(dialect, kind)
    _, level = difference_of(dialect, kind)
    if level is not None:
        assert digest(level(prompt)) == RECORDED[dialect][kind]
    else:
        assert RECORDED[dialect][kind] != "alike"
    asked = [each for each in KINDS[kind][0] if each["role"] == "user"]
    for message in conversation_of(json.loads(json.dumps(asked))):
        assert message.text in prompt


def test_every_difference_names_families_and_kinds_that_there_are():
    for _, where in DIFFERENCES.values():
        assert set(where) <= set(FAMILIES)
        assert set().union(*where.values()) <= set(KINDS)
