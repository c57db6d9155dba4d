"""Ready-made tools that look things up and calculate. You declare here what they may reach, never the model.

handrail call calculate '{"expression": "0.1 + 0.2"}' --tools examples/toolbox/web.py
handrail chat --tools examples/toolbox/web.py --model openai:NAME
"""

import os

from handrail.network.egress import Egress
from handrail_toolbox.calculator import calculate
from handrail_toolbox.units import convert_units
from handrail_toolbox.web import WebSearch
from handrail_toolbox.webpage import ReadPage
from handrail_toolbox.wikipedia import Wikipedia

TOOLS = [calculate, convert_units]

# search_wikipedia and read_wikipedia; the contact goes into the User-Agent, as Wikimedia asks.
wikipedia = Wikipedia("en", contact="ops@example.com")

# read_page: any page of these hosts, and of no other, wherever a page redirects.
read_page = ReadPage(Egress(hosts=["docs.python.org", "*.example.com"]))

# search_web and read_web_result, with a key of Tavily.
web = WebSearch() if os.environ.get("TAVILY_API_KEY") else []
