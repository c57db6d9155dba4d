"""Tools for tests of selectors: a few real-looking ones among many."""

import handrail as hr


def described(name, description, *, tags=(), **parameters):
    """Return a tool that is nothing but its texts; each parameter is given by its description."""
    properties = {
        each: {"type": "string", "description": text}
        for each, text in parameters.items()
    }
    schema = {"type": "object", "properties": properties}
    return hr.FunctionTool(
        lambda **given: {"done": name, **given}, name=name, description=description, parameters=schema, effect="read",
        tags=tags,
    )  # fmt: skip


WEATHER = described(
    "get_weather", "Get the current weather of a city.", city="Name of the city."
)
OUTPUT = described(
    "getPowerOutput", "Read the meter of a plant.", plant_id="Which plant."
)
REFUND = described(
    "refund_order", "Give the customer their money back.", order_id="Which order."
)
ZH = described(
    "query_train_ticket",
    "查询火车票的余票和价格",
    出发站="出发的车站",
    日期="出发日期，例如2024-05-01",
)
INVOICE = described(
    "user_info.export",
    "Export invoices of an account.",
    account="Account number, such as A-17.",
)
FEW = [WEATHER, OUTPUT, REFUND, ZH, INVOICE]

_THINGS = (
    "server",
    "ticket",
    "invoice",
    "contract",
    "lease",
    "vehicle",
    "employee",
    "shipment",
    "budget",
    "survey",
)
_ACTS = ("create", "list", "archive", "approve", "merge")
_PLACES = ("berlin", "lagos", "quito", "hanoi")


def two_hundred():
    """Return 200 tools: 10 things x 5 acts x 4 offices, each with its parameters described."""
    return [
        described(
            f"{act}_{thing}_{place}",
            f"{act.title()} one {thing} of the {place.title()} office. Use it for that office only.",
            tags=(f"{place} office",),
            record_id=f"Number of the {thing}, such as {thing[:3].upper()}-1.",
            comment=f"Why the {thing} is dealt with, in one sentence for the audit of the office.",
            urgency="How soon it is needed: today, this week or later.",
        )
        for place in _PLACES
        for thing in _THINGS
        for act in _ACTS
    ]
