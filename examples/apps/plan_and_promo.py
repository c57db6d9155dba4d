"""Two writes to one user in one answer of a model: the race, and how one line ends it.

    python examples/apps/plan_and_promo.py
    python examples/apps/plan_and_promo.py --model openai:NAME

The customer service knows only GET and PUT of a whole record, as many do. A model asks for a plan and a promo code of
the same user at once. A loop that starts all calls together loses writes; with `resource="user:{user_id}"` calls on one
user run in the model's order, and two users still go side by side. Both worlds are printed, from the same calls.
"""

import argparse
import asyncio
import json
from copy import deepcopy

import handrail as hr
from handrail.testing import Overlap, ScriptedModel, call

QUESTION = "Put U1 on the team plan and redeem LOYAL for her; put U2 on pro and redeem LOYAL for him too."
CALLS = [
    call("update_plan", user_id="U1", plan="team"),
    call("redeem_promo", user_id="U1", code="LOYAL"),
    call("update_plan", user_id="U2", plan="pro"),
    call("redeem_promo", user_id="U2", code="LOYAL"),
]
PRICES = {"free": 0, "pro": 20, "team": 50}
MODEL = ScriptedModel([CALLS, "Both users have their new plan and their credit."])


class CustomerService:
    """The stand-in: a record per user, read and written as a whole, over a line that takes a moment."""

    def __init__(self):
        self.records = {name: {"user_id": name, "plan": "free", "credit": 0} for name in ("U1", "U2")}
        self.log, self.inside = [], Overlap()

    async def get(self, user_id):
        await asyncio.sleep(0.002)
        self.log.append(f"GET {user_id}")
        return deepcopy(self.records[user_id])

    async def put(self, record):
        await asyncio.sleep(0.002)
        self.log.append(f"PUT {record['user_id']} {record['plan']}, credit {record['credit']}")
        self.records[record["user_id"]] = record


def tools_of(service, *, resource):
    """Make the two tools; `resource` says what a call touches, None that it touches nothing shared."""
    write = {"effect": "write", "timeout_s": 10, "resource": resource}

    @hr.tool(**{**write, "key": "plan:{user_id}:{plan}"})
    async def update_plan(user_id: str, plan: str) -> dict:
        """Put a user on another plan. Use it when the user asked for that plan.

        Args:
            user_id: Such as "U1".
            plan: "free", "pro" or "team".
        """
        async with service.inside:
            record = await service.get(user_id)
            record["plan"] = plan
            await service.put(record)
            return record

    @hr.tool(**{**write, "key": "promo:{user_id}:{code}"})
    async def redeem_promo(user_id: str, code: str) -> dict:
        """Redeem a promo code: a credit of half the price of the user's plan. Use it for codes that the user names.

        Args:
            user_id: Such as "U1".
            code: Such as "LOYAL".
        """
        async with service.inside:
            record = await service.get(user_id)
            record["credit"] += PRICES[record["plan"]] // 2
            await service.put(record)
            return record

    return [update_plan, redeem_promo]


async def without():
    """Do what a plain loop does: start every call of the answer, wait for all."""
    service = CustomerService()
    by_name = {tool.name: tool for tool in tools_of(service, resource=None)}
    await asyncio.gather(*(by_name[each.name](**json.loads(each.arguments)) for each in CALLS))
    return service


async def with_handrail(model):
    """Let a run carry the same calls out."""
    service = CustomerService()
    async with hr.Runtime(tools_of(service, resource="user:{user_id}")) as runtime:
        run = await runtime.run(QUESTION, model=model)
    return service, run


def show(title, service):
    """Print what became of the world."""
    print(title, *(f"    {each}" for each in service.log), sep="\n")
    for record in service.records.values():
        print(f"  {record['user_id']}: plan {record['plan']}, credit {record['credit']}")
    print(f"  calls inside at once: {service.inside.most_inside}\n")


def main(arguments=None):
    """Run both; return both worlds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=MODEL)
    raced, (ordered, run) = asyncio.run(without()), asyncio.run(with_handrail(parser.parse_args(arguments).model))
    print(f"{QUESTION}\n")
    show("Without handrail, all calls at once: writes are lost.", raced)
    show('With resource="user:{user_id}": in order for one user, two users side by side.', ordered)
    print(f"What the model answered: {run.text}")
    return raced, ordered


if __name__ == "__main__":
    main()
