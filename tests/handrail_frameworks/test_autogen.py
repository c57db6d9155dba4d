"""handrail under AutoGen."""

from __future__ import annotations

import pytest

pytest.importorskip("autogen_agentchat", reason="AutoGen is not installed")

from tests.handrail_frameworks.unnamed_cases import PROMISES, check_scenario

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@PROMISES
def test_a_scenario_ends_as_wanted(name):
    check_scenario("autogen", name)
