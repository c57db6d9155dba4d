"""Two hundred tools, of which a turn shows a handful: what is sent, by selector. Runs without a key."""

import json

import handrail as hr
from handrail.selectors.offering import Searching
from handrail.testing import ScriptedServer, call

OFFICES = ("berlin", "lagos", "quito", "hanoi")
THINGS = ("server", "ticket", "invoice", "contract", "lease", "vehicle", "employee", "shipment", "budget", "survey")
ACTS = ("create", "list", "archive", "approve", "merge")


def office_tool(act: str, thing: str, office: str) -> hr.FunctionTool:
    """Return one tool of one office; its tag is its group."""

    def work(record_id: str, comment: str = "", urgency: str = "this week") -> str:
        return f"{act} {record_id}: done"

    work.__doc__ = f"""{act.title()} one {thing} of the {office.title()} office. Use it for that office only.

    Args:
        record_id: Number of the {thing}, such as {thing[:3].upper()}-1.
        comment: Why the {thing} is dealt with, in one sentence for the audit.
        urgency: How soon it is needed: today, this week or later.
    """
    effect = "read" if act == "list" else "write"
    return hr.FunctionTool(work, name=f"{act}_{thing}_{office}", effect=effect, tags=[office])


TOOLS = [office_tool(act, thing, office) for office in OFFICES for thing in THINGS for act in ACTS]
QUESTION = "Approve the lease of the office in Hanoi, LEA-7."
APPROVE = call("approve_lease_hanoi", record_id="LEA-7")
WAYS = {
    "all": ("all", [APPROVE]),
    "auto (the default)": ("auto", [APPROVE]),
    "the model searches": (Searching(most=0), [call("search_tools", query="approve a lease in Hanoi"), APPROVE]),
    "two-stage": ("two-stage", [call("load_tools", names=["approve_lease_hanoi"]), APPROVE]),
}


def main() -> None:
    """Ask the same in every way, and print what the definitions cost in each turn."""
    for way, (selector, script) in WAYS.items():
        with ScriptedServer([*script, "Approved."]) as server, hr.SyncRuntime(TOOLS, selector=selector) as runtime:
            run = runtime.run(QUESTION, model=server.model)
        sent = [(len(body["tools"]), len(json.dumps(body["tools"])) // 4) for body in server.requests]
        print(f"{way:20} {run.text} " + ", ".join(f"{tools} tools ~{tokens:,} tokens" for tools, tokens in sent))


if __name__ == "__main__":
    main()
