"""A setting whose function nobody would await takes no async one: it is refused when it is given."""

import functools

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.testing import ScriptedModel
from tests.support.drivers import BOUND_S


async def asked(*_, **__):
    return "never awaited"


class Asked:
    async def __call__(self, *_, **__):
        return "never awaited"


ASYNC = [asked, Asked(), functools.partial(asked, 1)]
KINDS = ["a function", "an object", "a partial"]


@hr.tool(effect="write", timeout_s=BOUND_S)
def write(order: str) -> str:
    """Write."""
    return "written"


@pytest.mark.parametrize("function", ASYNC, ids=KINDS)
@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
def test_an_async_observer_of_a_runtime_is_refused(kind, function):
    with pytest.raises(hr.SetupError, match="is async, and nobody would await it"):
        kind([write], observers=[function])


@pytest.mark.parametrize("function", ASYNC, ids=KINDS)
def test_an_async_observer_of_a_run_is_refused(drive, function):
    driver = drive([write])
    with pytest.raises(hr.SetupError, match="is async, and nobody would await it"):
        driver.run("q", model=ScriptedModel(["end"]), observers=[function])


@pytest.mark.parametrize("function", ASYNC, ids=KINDS)
@pytest.mark.parametrize("setting", ["check", "approve", "key"])
def test_an_async_rule_of_a_tool_is_refused(setting, function):
    with pytest.raises(hr.ToolDefinitionError, match="plain function"):
        hr.FunctionTool(write.fn, name="w", effect="write", **{setting: function})


@pytest.mark.parametrize("function", ASYNC, ids=KINDS)
def test_an_async_function_of_a_step_is_refused(function):
    with pytest.raises(hr.ToolDefinitionError, match="must be a plain one"):
        hr.Then(write, function)


def test_an_async_policy_is_refused():
    class Waiting(hr.Policy):
        async def judge(self, tool, arguments):
            return "never awaited"

    with pytest.raises(hr.SetupError, match="`judge` of Waiting is async"):
        hr.Runtime([write], policy=Waiting())


@pytest.mark.parametrize("setting", ["check", "key", "approve"])
def test_a_rule_that_gives_a_coroutine_after_all_keeps_the_tool_from_running(
    drive, setting
):
    tool = hr.FunctionTool(
        write.fn, name="w", effect="write", **{setting: lambda order: asked()}
    )
    result = drive([tool]).call("w", {"order": "7"})
    assert result.failure.code == Code.INTERNAL_ERROR
    assert result.attempts == 0


def test_an_observer_that_gives_a_coroutine_after_all_is_logged(drive, caplog):
    driver = drive([write], observers=[lambda event: asked()])
    assert driver.call("write", {"order": "7"}).ok
    assert "an observer gave a coroutine" in caplog.text
