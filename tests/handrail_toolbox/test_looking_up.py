"""The tools that look things up, all in one set: told apart by a model, found by users' words, called at once."""

import asyncio
import doctest
import importlib
import runpy
from pathlib import Path

import pytest

import handrail as hr
from handrail.cli.loading import tools_from
from handrail.testing.checklist import check
from handrail_toolbox.calculator import calculate
from handrail_toolbox.units import convert_units
from handrail_toolbox.web import WebSearch
from handrail_toolbox.webpage import ReadPage
from handrail_toolbox.wikipedia import Wikipedia
from stand_ins.mediawiki import MediaWiki
from stand_ins.tavily import Tavily

TOOLS = hr.Toolset(
    [
        calculate,
        convert_units,
        *Wikipedia(),
        *WebSearch(api_key="tvly-none"),
        ReadPage(),
    ]
)
EXAMPLE = Path(__file__).parents[2] / "examples/toolbox/web.py"


def test_together_they_are_clean():
    assert (hr.lint(TOOLS).findings, check(TOOLS).missing) == ([], [])


@pytest.mark.parametrize(("question", "tool"), [
    ("帮我算一下 3*4", "calculate"),
    ("100英里是多少公里", "convert_units"),
    ("华氏98度是多少摄氏度", "convert_units"),
    ("今天有什么新闻", "search_web"),
    ("在维基百科搜索月球", "search_wikipedia"),
    ("读一下这个词条", "read_wikipedia"),
    ("打开网址 https://a.example", "read_page"),
    ("convert miles to km", "convert_units"),
    ("search the web for news", "search_web"),
])  # fmt: skip
def test_they_are_found_by_the_words_of_users(question, tool):
    assert hr.selectors.bm25(TOOLS).top(question, k=1)[0].name == tool


def test_many_calls_at_once_share_one_client_each():
    async def ask(tools):
        async with hr.Runtime(tools) as runtime:
            calls = [runtime.call("search_web", {"query": "moon"}) for _ in range(5)]
            calls += [
                runtime.call("search_wikipedia", {"query": "moon"}) for _ in range(5)
            ]
            return await asyncio.gather(*calls)

    with MediaWiki() as wiki, Tavily() as web:
        tools = [
            *Wikipedia(api=wiki.api),
            *WebSearch(api_key=web.key, base_url=web.url),
        ]
        results = asyncio.run(ask(tools))
        # A tool outlives the loop: its client is made anew for the next runtime.
        results += asyncio.run(ask(tools))
    assert [result.failure for result in results if not result.ok] == []


def test_the_example_needs_no_key(monkeypatch):
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    names = [tool.name for tool in tools_from([str(EXAMPLE)])]
    assert names == [
        "calculate",
        "convert_units",
        "search_wikipedia",
        "read_wikipedia",
        "read_page",
    ]
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-none")
    assert len(runpy.run_path(str(EXAMPLE))["web"]) == 2


@pytest.mark.parametrize(
    "module",
    [
        "handrail_toolbox.calculator",
        "handrail_toolbox.units",
        "handrail.network.egress",
        "handrail_toolbox.webpage",
    ],
)
def test_the_examples_of_their_docstrings_hold(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0 and found.failed == 0
