"""How many thousand hours would Eliud Kipchoge need to run to the Moon at its closest, at his marathon pace? (17)

    python examples/apps/kipchoge.py                  # a stand-in web, a stand-in Wikipedia, a scripted model
    python examples/apps/kipchoge.py --wire anthropic # the same over another provider's wire, or hermes, llama3, ...
    python examples/apps/kipchoge.py --mcp            # the same tools, behind a server of the Model Context Protocol
    python examples/apps/kipchoge.py --model openai:NAME     # the real Wikipedia; the real web with TAVILY_API_KEY

Shown: search, pages read section by section, two of them at once, and arithmetic that only ever happens in the
calculator: the model's last sentence has no number that it did not read there.
"""

import argparse
import asyncio
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import handrail as hr
from handrail.cli.printer import Printer, console
from handrail.cli.timeline import Timeline
from handrail.messages import ToolMessage
from handrail.testing import ScriptedServer, call
from handrail_toolbox.calculator import calculate
from handrail_toolbox.units import convert_units
from handrail_toolbox.web import WebSearch
from handrail_toolbox.wikipedia import Wikipedia
from stand_ins.mediawiki import MediaWiki
from stand_ins.tavily import Tavily

QUESTION = (
    "If Eliud Kipchoge could keep up the pace of his record marathon, how many thousand hours would he need to run "
    "from the Earth to the Moon at its closest? Use the least distance that Wikipedia names; round to whole thousands."
)
SYSTEM = "Look facts up and cite where they stand. Never calculate yourself: use `calculate` for all arithmetic."

LOOKUP = Path(__file__).parents[1] / "mcp/lookup.py"
SERVER = [sys.executable, "-m", "handrail", "serve", "mcp", "--tools", str(LOOKUP)]


def found(pattern, messages):
    """Return what a pattern finds last in the conversation, as a model reads it: a prompt dialect's is one text."""
    texts = [each.result.text if isinstance(each, ToolMessage) else getattr(each, "text", "") for each in messages]
    return list(re.finditer(pattern, "\n".join(texts)))[-1].groups()


def work_it_out(messages):
    """Write the figures that were read as one expression."""
    (distance_km,) = found(r"([\d,]+) km at the closest perigee", messages)
    (course_km,) = found(r"over ([\d.]+) kilometres", messages)
    hours, minutes, seconds = found(r"a marathon in (\d+):(\d\d):(\d\d)", messages)
    pace = f"{course_km} / ({hours} + {int(minutes)} / 60 + {int(seconds)} / 3600)"
    return call("calculate", expression=f"round({distance_km.replace(',', '')} / ({pace}) / 1000)")


def answer(messages):
    """Say what the calculator said."""
    (thousands,) = found(r"result\W+(\d+)\W+exact", messages)
    return f"About {thousands} thousand hours."


SCRIPT = [
    [call("search_web", query="Eliud Kipchoge marathon pace", limit=2), call("search_wikipedia", query="Kipchoge")],
    call("read_wikipedia", title="Eliud Kipchoge"),
    [
        call("read_wikipedia", title="Eliud Kipchoge", section="Marathon"),
        call("read_wikipedia", title="Moon", section="Distance"),
        call("read_wikipedia", title="Marathon"),
    ],
    work_it_out,
    answer,
]


async def ask(question, model, tools, printer):
    """Ask, print what happens meanwhile, and return the run."""
    printer.question(question)
    async with hr.Runtime(tools, policy=hr.Policy(max_permission="read"), observers=[printer]) as runtime:
        run = await runtime.run(question, model=model, system=SYSTEM, budget=hr.Budget(time_s=120, calls=20))
    printer.say(run.text or run.reason)
    return run


def main(arguments=None):
    """Run the app; return the run."""
    parser = argparse.ArgumentParser(description="To the Moon at marathon pace.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--model", help="a real model, such as openai:NAME, and the real Wikipedia")
    parser.add_argument("--wire", default="openai-chat", help="what the scripted model speaks")
    parser.add_argument("--mcp", action="store_true", help="have the tools served by another process, over MCP")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        if options.model:
            model, tools = options.model, [*Wikipedia(), calculate, convert_units]
            tools += WebSearch() if os.environ.get("TAVILY_API_KEY") else []
        else:
            model = stack.enter_context(ScriptedServer(SCRIPT, wire=options.wire)).model
            wiki, web = stack.enter_context(MediaWiki()), stack.enter_context(Tavily())
            search = WebSearch(api_key=web.key, base_url=web.url)
            tools = [*Wikipedia(api=wiki.api), *search, calculate, convert_units]
            if options.mcp:
                env = {"WIKIPEDIA_API": wiki.api, "TAVILY_API_KEY": web.key, "TAVILY_URL": web.url}
                tools = stack.enter_context(hr.mcp.tools(SERVER, prefix="", trust="hints", env=env))
        return asyncio.run(ask(options.question, model, tools, Printer(Timeline(), console())))


if __name__ == "__main__":
    main()
