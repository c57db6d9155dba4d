"""handrail under CrewAI: what its tools are told, and what a crew is told by them."""

from __future__ import annotations

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"

import pytest

pytest.importorskip("crewai", reason="crewai is not installed")

from crewai.tools.tool_failure import ToolFailure

import handrail as hr
from handrail_frameworks.crewai import as_tools
from tests.handrail_frameworks.unnamed_cases import PROMISES, check_scenario

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@PROMISES
def test_a_scenario_ends_as_wanted(name):
    check_scenario("crewai", name)


@pytest.fixture
def runtime():
    @hr.tool(effect="read")
    def find(count: int, near: str = "here") -> str:
        """Find places."""
        return f"{count!r} near {near}"

    runtime = hr.Runtime([find])
    yield runtime
    runtime.blocking.close()


def test_handrail_reads_the_arguments_as_the_model_wrote_them(runtime):
    tool = as_tools(runtime, run="t")[0]
    assert "count" in tool.args_schema.model_json_schema()["properties"]
    refused = tool.run(count=[1], near="here")
    assert "INVALID_ARGUMENTS" in refused


def test_null_for_an_optional_argument_leaves_it_out(runtime):
    tool = as_tools(runtime, run="t")[0]
    assert tool.run(count=2, near=None) == "2 near here"


def test_the_call_that_would_close_a_circle_is_a_failure_to_the_crew(runtime):
    tool = as_tools(runtime, run="t")[0]
    replies = [tool.run(count=2) for _ in range(3)]
    assert [type(each) for each in replies] == [str, str, ToolFailure]


def test_tenants_share_no_run(runtime):
    scopes = iter(["acme", "bolt", "acme"])
    tools = as_tools(runtime, run="t", options=lambda name: {"scope": next(scopes)})
    assert [tools[0].run(count=2) for _ in range(2)] == ["2 near here"] * 2
    assert "same as before" in tools[0].run(count=2)
