"""A secret that a tool needs, and that a careless tool, a log and a database would otherwise let out."""

import os
import sqlite3
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import handrail as hr
from handrail.testing import ScriptedModel, call

os.environ["SHOP_KEY"] = "open-sesame-7041"  # set outside of the program, in earnest


@hr.tool(effect="read", timeout_s=5)
def get_balance(account: str, key: Annotated[hr.Secret, hr.Injected]) -> dict[str, str]:
    """Get the balance of an account."""
    header = b64encode(f"me:{key.reveal()}".encode()).decode()
    return {"balance": "49.00", "asked_with": f"Authorization: Basic {header}"}  # a mistake


def show(event: hr.events.Event) -> None:
    """Print a call as observers see it."""
    if isinstance(event, hr.events.CallAdmitted):
        print("an observer sees", event.call.arguments)


key = hr.Secret("env:SHOP_KEY")
print(f"{key} {key!r}")
# The user tells the model the key, and the model writes it into a call.
script = [[call("get_balance", account="open-sesame-7041")], "The balance is 49.00."]
with TemporaryDirectory() as place:
    file = Path(place, "handrail.db")
    with hr.SyncRuntime([get_balance], store=f"sqlite:///{file}", secrets=[key], observers=[show]) as runtime:
        run = runtime.run("What is my balance?", model=ScriptedModel(script), inject={"key": key})
    print("the model reads", run.messages[2].result.text)
    database = sqlite3.connect(file)
    print("in the file:", "open-sesame" in "\n".join(database.iterdump()))
    database.close()
