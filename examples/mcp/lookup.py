"""Search, an encyclopedia and a calculator, for any client of the Model Context Protocol.

    handrail serve mcp --tools examples/mcp/lookup.py
    npx @modelcontextprotocol/inspector --cli handrail serve mcp --tools examples/mcp/lookup.py --method tools/list

With TAVILY_API_KEY it searches the web, else Wikipedia alone. TAVILY_URL and WIKIPEDIA_API name other places, such as
the stand-ins of `handrail.testing`.
"""

import os

import handrail as hr
from handrail_toolbox.calculator import calculate
from handrail_toolbox.units import convert_units
from handrail_toolbox.web import WebSearch
from handrail_toolbox.wikipedia import Wikipedia

encyclopedia = Wikipedia(api=os.environ["WIKIPEDIA_API"]) if "WIKIPEDIA_API" in os.environ else Wikipedia()
web = []
if "TAVILY_API_KEY" in os.environ:
    base = {"base_url": os.environ["TAVILY_URL"]} if "TAVILY_URL" in os.environ else {}
    web = [*WebSearch(api_key=os.environ["TAVILY_API_KEY"], **base)]
tools = hr.Toolset([*encyclopedia, *web, calculate, convert_units])
