"""The audit log of a read and a write: what it holds, its check against a checkpoint and a key, and a change."""

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from secrets import token_hex
from sys import executable
from tempfile import TemporaryDirectory

import handrail as hr


@hr.tool(effect="read", timeout_s=5)
def get_order(order_id: str) -> dict[str, object]:
    """Look an order up."""
    return {"order_id": order_id, "paid": 49}


@hr.tool(effect="write", key="refund:{order_id}", timeout_s=5)
def refund(order_id: str, amount: float, password: str) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"


def handrail(*words: str) -> str:
    """Do what an operator types: `handrail ...`."""
    print("$ handrail", *words)
    return subprocess.run([executable, "-m", "handrail", *words], stdout=subprocess.PIPE, encoding="utf-8").stdout


with TemporaryDirectory() as place:
    os.chdir(place)
    Path("audit.key").write_text(token_hex(32))
    os.environ |= {"HANDRAIL_STORE": "sqlite:///handrail.db", "HANDRAIL_AUDIT_KEY_FILE": "audit.key"}
    with hr.SyncRuntime([get_order, refund], store="sqlite:///handrail.db", principal="c-881") as runtime:
        runtime.call("get_order", {"order_id": "A-1"})
        runtime.call("refund", {"order_id": "A-1", "amount": 20, "password": "open sesame"})

    for line in handrail("audit", "tail", "-n", "3", "--json").splitlines():
        record = json.loads(line)
        body = {name: value for name, value in record["body"].items() if name not in ("call", "seconds", "pin")}
        if "result" in body:  # made with a key of this store
            body["result"] = body["result"].partition(":")[0] + ":..."
        print(record["seq"], record["event"], json.dumps(body, indent=2))

    Path("checkpoint.json").write_text(handrail("audit", "tail", "-n", "1", "--json"))  # where nobody else writes
    print(handrail("audit", "verify", "--checkpoint", "checkpoint.json").partition("the last is")[0])

    with sqlite3.connect("handrail.db") as database:  # somebody who may write to the store
        database.execute("UPDATE audit SET body = replace(body, '20', '2000') WHERE seq = 2")
    print(handrail("audit", "verify", "--checkpoint", "checkpoint.json"))
