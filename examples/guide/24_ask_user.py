"""A run asks the user in its middle, ends, and goes on with the answer when it comes: in any process, however late."""

from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.testing import ScriptedServer, call
from handrail_toolbox.asking import ask_user


@hr.tool(effect="write", deferred=True, timeout_s=5)
def order_paint(colour: str, context: hr.Context) -> None:
    """Order paint; the shop calls back with the day of delivery."""
    print(f"to the shop: {colour}, answer to {context.run_id} {context.call_id}")


script = [
    call("ask_user", question="Which colour?", options=["red", "blue"]),
    call("order_paint", colour="blue"),
    "It comes on Monday.",
]
with TemporaryDirectory() as place, ScriptedServer(script, wire="hermes") as server:
    store = f"sqlite:///{Path(place, 'handrail.db')}"
    with hr.SyncRuntime([ask_user, order_paint], store=store) as runtime:
        run = runtime.run("Paint the door.", model=server.model, run_id="door")
        [question] = runtime.approvals.list(run="door")
        print(run.status, "|", question.arguments["question"], question.arguments["options"])
    with hr.SyncRuntime([ask_user, order_paint], store=store) as tomorrow:
        tomorrow.deliver(question.id, "blue", by="the user")
        print(tomorrow.resume("door").reason)
        [parcel] = tomorrow.approvals.list(run="door")
        for _ in range(2):  # a message may come twice
            tomorrow.deliver(parcel.id, {"day": "Monday"}, by="the shop")
        print(tomorrow.resume("door").text)
