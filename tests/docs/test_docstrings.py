"""The examples in docstrings, each run as it stands."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import handrail

SRC = Path(handrail.__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    for path in SRC.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_some_docstrings_have_examples():
    assert "handrail.dialects.received" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name):
    assert doctest.testmod(import_module(name)).failed == 0
