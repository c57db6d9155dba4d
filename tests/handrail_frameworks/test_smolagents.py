"""handrail under smolagents: whole turns, and a person's word that the model asks for again."""

import pytest

import handrail as hr

pytest.importorskip("smolagents")

from handrail_frameworks.bench.on_smolagents import ScriptedSmolModel
from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS, ScriptedTurn
from handrail_frameworks.smolagents import HandrailAgent

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["repeated", "parallel", "order", "malformed", "unknown", "approve"]
)
def test_a_scenario_ends_as_wanted(name):
    cell = play("smolagents", name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)


def test_each_task_has_a_budget_of_its_own():
    read = []

    @hr.tool(effect="read")
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        read.append(city)
        return "sunny"

    runtime = hr.Runtime([get_weather], budget=hr.Budget(calls=2))
    for task in range(3):
        calls = [
            (f"{task}-{number}", "get_weather", f'{{"city": "{task}-{number}"}}')
            for number in range(2)
        ]
        model = ScriptedSmolModel(
            [ScriptedTurn(calls=calls), ScriptedTurn(text="Done.", finish="stop")]
        )
        agent = HandrailAgent(runtime, run="one", model=model, verbosity_level=0)
        assert agent.run("Compare.") == "Done."
    runtime.blocking.close()
    assert len(read) == 6
