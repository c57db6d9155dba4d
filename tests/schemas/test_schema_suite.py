"""The JSON Schema Test Suite (draft 2020-12, the required part), each instance as the arguments of a tool.

Set `HANDRAIL_SCHEMA_SUITE` to a checkout of https://github.com/json-schema-org/JSON-Schema-Test-Suite. The source
distribution of `jsonschema` carries one too, as `json`.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from handrail.errors import ToolDefinitionError
from handrail.schemas.validation import Checked, Checker


class Case(NamedTuple):
    file: str
    schema: dict
    arguments: dict
    valid: bool
    accepted: bool


SUITE = os.environ.get("HANDRAIL_SCHEMA_SUITE", "")


def cases():
    """Yield file, schema of arguments, arguments, and whether they are valid; what is no object lies in a property."""
    if not SUITE:
        pytest.skip("the JSON Schema Test Suite is absent; set HANDRAIL_SCHEMA_SUITE")
    for path in sorted(Path(SUITE, "tests", "draft2020-12").glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            for test in group["tests"]:
                schema, arguments = group["schema"], test["data"]
                if not (isinstance(schema, dict) and isinstance(arguments, dict)):
                    schema = {
                        "type": "object",
                        "properties": {"value": schema},
                        "required": ["value"],
                    }
                    arguments = {"value": arguments}
                yield path.stem, schema, arguments, test["valid"]


def verdicts(coerce):
    """Return each case whose schema a tool may have, with the verdict."""
    found = []
    for file, schema, arguments, valid in cases():
        checker = Checker(schema, coerce=coerce)
        try:
            checker.compile()
        except ToolDefinitionError:
            # a reference to another document or dialect, or one that leads back to itself
            continue
        accepted = isinstance(checker.check(arguments), Checked)
        found.append(Case(file, schema, arguments, valid, accepted))
    return found


def test_no_invalid_instance_is_accepted():
    assert [
        case for case in verdicts(coerce=False) if case.accepted and not case.valid
    ] == []


def test_nearly_every_valid_instance_is_accepted():
    """Those that are not hold names beside the listed `properties`, which a tool's arguments may not."""
    valid = [case for case in verdicts(coerce=True) if case.valid]
    assert sum(case.accepted for case in valid) >= 0.99 * len(valid)
