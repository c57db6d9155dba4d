"""One weather call in every dialect: what goes to the model, what it answers, and how the result goes back.

    python examples/apps/one_call.py                     # three of HTTP and four families' prompts
    python examples/apps/one_call.py hermes anthropic    # those two
    python examples/apps/one_call.py all                 # these three and every prompt's, about 70

Everything printed went over real HTTP to a scripted server; left is the request, right the answer. Shown: the spelling
differs in everything, and the call is the same; the tool is written once and does not know.
"""

import argparse
import json

import httpx2
from rich.table import Table
from rich.text import Text

import handrail as hr
from handrail import plugins
from handrail.cli.printer import console
from handrail.testing import WIRES, ScriptedServer, call
from handrail_openmodels.prompts.dialect import PromptDialect

QUESTION = "How warm is it in 北京?"
FEW = [*WIRES, "hermes", "llama3.1", "mistral-v3-tekken", "harmony"]


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str) -> dict:
    """Get the temperature of a city in degrees Celsius. Use it for the present, not for forecasts."""
    return {"city": city, "celsius": 21}


def exchange(name):
    """Ask in one dialect; return the run, the request and the answer as text, and the call in plain terms."""
    script = [call("get_weather", city="北京"), "It is 21 °C in 北京."]
    with ScriptedServer(script, wire=name) as server, hr.SyncRuntime([get_weather]) as runtime:
        run = runtime.run(QUESTION, model=server.model)
        if not run.ok:
            raise SystemExit(f"{name}: {run.reason}")
        asked, path = server.requests[0], server.paths[0]
        answer = httpx2.post(server.base_url.removesuffix("/v1") + path, json=asked).json()
    spoken = hr.dialect(name)
    if isinstance(spoken, PromptDialect):
        sent, written = asked["prompt"], answer["choices"][0]["text"]
        turn = spoken.decode(written, runtime.tools)
    else:
        sent, written = laid_out(asked), laid_out(answer)
        turn = spoken.decode(answer, runtime.tools)
    results = [hr.ToolResult(each.id, value={"city": "北京", "celsius": 21}, name=each.name) for each in turn.calls]
    back = spoken.encode_results(turn.calls, results)
    return run, f"POST {path}\n\n{sent}", written, back if isinstance(back, str) else laid_out(back), turn.calls


def laid_out(value, indent=""):
    """Return JSON with a line for everything that fits on one of 50 characters."""
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(short) <= 50 or not isinstance(value, dict | list):
        return short
    pairs = value.items() if isinstance(value, dict) else (("", each) for each in value)
    lines = [f"{indent}  {json.dumps(key) + ': ' if key else ''}{laid_out(each, indent + '  ')}" for key, each in pairs]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + "\n" + ",\n".join(lines) + f"\n{indent}{end}"


def main(arguments=None):
    """Print the call in each dialect; return the calls as they were read, by dialect."""
    parser = argparse.ArgumentParser(description="One call in every dialect.")
    parser.add_argument("dialects", nargs="*", default=FEW, help="names, or `all`")
    names = parser.parse_args(arguments).dialects
    if names == ["all"]:
        names = [each for each in plugins.list_writers() if each in WIRES or is_prompt(each)]
    screen, read = console(), {}
    for name in names:
        run, request, answer, back, read[name] = exchange(name)
        table = Table("goes to the model", "comes back", title=f"{name}: {run.status}", expand=True, show_lines=True)
        table.add_row(Text(request), Text(f"{answer}\n\nThe result goes to the model as:\n\n{back}"))
        screen.print(table)
    same = {(each.name, each.arguments) for calls in read.values() for each in calls}
    screen.print(Text(f"{len(read)} dialects, {len(same)} call: {' '.join(next(iter(same)))}"))
    return read


def is_prompt(name):
    """Whether a dialect is a prompt rather than an HTTP API."""
    return isinstance(hr.dialect(name), PromptDialect)


if __name__ == "__main__":
    main()
