"""Runs become a training set: what was refused is not taught, and each correction is a pair."""

import json
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from handrail_openmodels.training import TrainingExport, export_runs, read_row


@hr.tool(effect="read")
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"sunny in {city}"


tools = hr.Toolset([get_weather])
refused = call("get_weather", town="北京")
corrected = call("get_weather", city="北京")
with TemporaryDirectory() as folder:
    store = SqliteStore(f"{folder}/runs.db")
    with hr.SyncRuntime(tools, store=store) as runtime:
        runtime.run("北京天气？", model=ScriptedModel([refused, corrected, "晴。"]))
        runtime.run("Oslo?", model=ScriptedModel([call("get_weather", city="Oslo"), "Sunny."]))

    export = TrainingExport("hermes", tools=tools)
    for row in export_runs(store, export):
        print([(each.name, each.arguments) for each in read_row("hermes", row).calls])
    print(*export.summary.lines(), sep="\n")

    for pair in export_runs(store, TrainingExport("preference", tools=tools)):
        for part in ("rejected", "chosen"):
            print(part, json.dumps(pair[part][0]["tool_calls"], ensure_ascii=False))
    store.close()
