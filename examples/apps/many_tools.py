"""Two hundred tools, of which a turn shows a handful: what is sent in each turn, before and after.

    python examples/apps/many_tools.py                       # every way to choose, with a scripted model
    python examples/apps/many_tools.py --model openai:NAME   # a real model, with each way

Five acts on ten kinds of records in four offices make 200 tools that differ in a word. Shown: the same lease is
approved every time, once; what changes is how much of the 200 definitions travels along. Tokens are characters / 4.
"""

import argparse
import json

import handrail as hr
from handrail.events import ModelAnswered, ModelAsked
from handrail.selectors.strategies import Searching
from handrail.testing import ScriptedServer, call

OFFICES = ("berlin", "lagos", "quito", "hanoi")
THINGS = ("server", "ticket", "invoice", "contract", "lease", "vehicle", "employee", "shipment", "budget", "survey")
ACTS = ("create", "list", "archive", "approve", "merge")
QUESTION = "Approve the lease of the office in Hanoi, LEA-7."
APPROVE = call("approve_lease_hanoi", record_id="LEA-7")
WAYS = {
    "all": ("all", [APPROVE]),
    "auto (the default)": ("auto", [APPROVE]),
    "the model searches": (Searching(most=0), [call("search_tools", query="approve a lease in Hanoi"), APPROVE]),
    "two-stage": ("two-stage", [call("load_tools", names=["approve_lease_hanoi"]), APPROVE]),
}


def office_tool(act, thing, office, done):
    """Return one tool of one office; its tag is its group. `done` is the world: what happened, in order."""

    def work(record_id: str, comment: str = "", urgency: str = "this week") -> str:
        done.append((act, thing, office, record_id))
        return f"{act} {record_id}: done"

    work.__doc__ = f"""{act.title()} one {thing} of the {office.title()} office. Use it for that office only.

    Args:
        record_id: Number of the {thing}, such as {thing[:3].upper()}-1.
        comment: Why the {thing} is dealt with, in one sentence for the audit.
        urgency: How soon it is needed: today, this week or later.
    """
    effect = "read" if act == "list" else "write"
    return hr.FunctionTool(work, name=f"{act}_{thing}_{office}", effect=effect, tags=[office], blocking=False)


def approved(way, model=None):
    """Ask in one way; return the run, what was done, and (tools, tokens) of each turn."""
    selector, script = WAYS[way]
    done = []
    tools = [office_tool(act, thing, office, done) for office in OFFICES for thing in THINGS for act in ACTS]
    if model:
        seen = []
        with hr.SyncRuntime(tools, selector=selector, observers=[seen.append]) as runtime:
            run = runtime.run(QUESTION, model=model)
        asked = [event.tools for event in seen if isinstance(event, ModelAsked)]
        used = [event.answer.usage.input_tokens for event in seen if isinstance(event, ModelAnswered)]
        return run, done, list(zip(asked, used, strict=False))
    with ScriptedServer([*script, "Approved."]) as server, hr.SyncRuntime(tools, selector=selector) as runtime:
        run = runtime.run(QUESTION, model=server.model)
    return run, done, [(len(body["tools"]), len(json.dumps(body["tools"])) // 4) for body in server.requests]


def main(arguments=None):
    """Ask the same in every way; print what the definitions cost in each turn, and return it by way."""
    parser = argparse.ArgumentParser(description="Two hundred tools.")
    parser.add_argument("--model", help="a real model, such as openai:NAME; its own count of tokens is then printed")
    options, outcomes = parser.parse_args(arguments), {}
    print(f"{QUESTION}\n\nway to choose        answer, acts done, and what each turn sent along\n{'-' * 20} {'-' * 55}")
    for way in WAYS:
        run, done, sent = outcomes[way] = approved(way, options.model)
        turns = ", ".join(f"{tools} tool{'' if tools == 1 else 's'} ~{tokens:,} tokens" for tools, tokens in sent)
        print(f"{way:20} {run.text} {len(done)} done.\n{'':20} {turns}")
    return outcomes


if __name__ == "__main__":
    main()
