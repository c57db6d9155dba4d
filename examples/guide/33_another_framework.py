"""A framework without an adapter: each tool that it gets is a function that hands its call to the runtime."""

import json
from tempfile import TemporaryDirectory
from uuid import uuid4

import handrail as hr


@hr.tool(effect="write", key="{order}", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


def as_function(runtime, name, run):
    """Return a function that carries out calls of a tool, for a framework that parses the arguments itself."""

    def function(**arguments):
        call = hr.ToolCall(f"call_{uuid4().hex}", name, json.dumps(arguments))  # or the model's id
        [result] = runtime.calls([call], run=run)
        if result.ends_run:  # a circle, or a budget that is used up
            raise RuntimeError(result.ends_run)
        return result.text

    return function


with TemporaryDirectory() as folder, hr.SyncRuntime([pay], store=f"sqlite:///{folder}/handrail.db") as runtime:
    tool = runtime.offered().get("pay")
    print(tool.name, "|", tool.description, "|", *tool.parameters["properties"])
    function = as_function(runtime, tool.name, run="conversation-1")
    print(function(order="A-1", amount=80))
    print(function(order="A-1", amount=80))
    print(json.loads(function(order="A-2", amount=900))["error_code"])
    [question] = runtime.approvals.list()
    runtime.approvals.approve(question.id, by="anna")  # in any process
    print(function(order="A-2", amount=900))
