"""The ready-made tools taken together: one page that lists them, and one vocabulary."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

import handrail as hr
from handrail.testing.checklist import check
from handrail_toolbox.calculator import calculate
from handrail_toolbox.desk import SupportDesk
from handrail_toolbox.documents import Documents
from handrail_toolbox.files import Files
from handrail_toolbox.kubernetes import Kubernetes
from handrail_toolbox.mail import SendEmail
from handrail_toolbox.run_python import RunPython
from handrail_toolbox.sql import Databases
from handrail_toolbox.units import convert_units
from handrail_toolbox.web import WebSearch
from handrail_toolbox.webpage import ReadPage
from handrail_toolbox.wikipedia import Wikipedia

PAGE = Path(__file__).parents[2] / "docs/reference/toolbox/README.md"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    desk = f"sqlite:///{folder}/desk.db"
    return hr.Toolset([
        calculate, convert_units, *Wikipedia(), *WebSearch(api_key="none"), ReadPage(),
        *Files([folder], writing=True), *Documents({"leave": "# Leave"}), RunPython(),
        SendEmail("smtp.example.com", sender="bot@example.com"), *Databases({"desk": desk}), *SupportDesk(desk),
        *Kubernetes(contexts=["staging"], namespaces=["shop"]),
    ])  # fmt: skip


def test_all_of_them_are_lint_clean_but_for_their_number(tools):
    """Also the rules on tools that are too alike, which no tool breaks alone."""
    assert {finding.rule for finding in hr.lint(tools).findings} == {"too-many-tools"}
    # which repeats what lint says
    assert {line.item for line in check(tools).missing} == {"description"}


def test_the_page_lists_each_with_its_effect(tools):
    rows = re.findall(
        r"^\|.*\| `(\w+)` \| (read|write) \|", PAGE.read_text(encoding="utf-8"), re.M
    )
    assert dict(rows) == {tool.name: tool.effect for tool in tools}


def test_a_parameter_of_one_name_has_one_type(tools):
    types = defaultdict(set)
    for definition in tools.definitions():
        for name, schema in definition["function"]["parameters"]["properties"].items():
            types[name].add(str(schema["type"]))
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_how_many_at_most_is_always_called_limit(tools):
    names = {
        name
        for each in tools.definitions()
        for name in each["function"]["parameters"]["properties"]
    }
    assert names.isdisjoint(
        {
            "count",
            "k",
            "max_hits",
            "max_results",
            "most",
            "n",
            "page_size",
            "size",
            "top",
            "top_k",
        }
    )
