"""handrail under Inspect: an evaluation of real samples, whose model is scripted."""

from __future__ import annotations

import pytest

import handrail as hr

pytest.importorskip("inspect_ai", reason="Inspect is not installed")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate, use_tools

from handrail_frameworks.bench.on_inspect_ai import scripted_model
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.inspect_ai import as_tools
from tests.handrail_frameworks.unnamed_cases import PROMISES, check_scenario

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
END = ScriptedTurn(text="Done.", finish="stop")


@PROMISES
def test_a_scenario_ends_as_wanted(name):
    check_scenario("inspect", name)


def test_samples_are_runs_of_their_own_and_calls_have_the_model_s_ids(tmp_path):
    seen = []

    @hr.tool(effect="write")
    def pay(context: hr.Context, order: str) -> str:
        """Pay for an order."""
        seen.append((context.run_id, context.call_id))
        return "paid"

    calls = [(f"call_{n}", "pay", f'{{"order": "A-{n}"}}') for n in (1, 2)]
    runtime = hr.Runtime([pay], store=f"sqlite:///{tmp_path}/h.db")
    task = Task(
        dataset=[Sample("Pay."), Sample("Pay as well.")],
        solver=[use_tools(as_tools(runtime)), generate()],
    )
    model = scripted_model([ScriptedTurn(calls=calls), END])
    (log,) = eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none")
    runtime.blocking.close()
    samples = {sample.uuid for sample in log.samples}
    assert len(samples) == 2
    assert sorted(seen) == sorted(
        (run, call) for run in samples for call in ("call_1", "call_2")
    )
    messages = [each for sample in log.samples for each in sample.messages]
    assert [each.text for each in messages if each.role == "tool"] == ["paid"] * 4
