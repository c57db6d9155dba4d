"""`handrail eval select`: a table, a plot, a report, and two reports beside each other."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from handrail.testing import ScriptedServer, call
from tests.selectors.tools import FEW, two_hundred


def definitions(tools, **changed):
    return [
        {
            "name": t.name,
            "description": changed.get(t.name, t.description),
            "parameters": t.parameters,
        }
        for t in tools
    ]


QUESTIONS = [
    {"query": "How warm is it in the city?", "tools": ["get_weather"]},
    {"query": "我要去上海，查一下火车票", "tools": ["query_train_ticket"]},
    {"query": "The weather, and then my money back for the order", "tools": ["get_weather", "refund_order"]},
    {"query": "Approve the lease of the Hanoi office", "calls": [
        {"name": "approve_lease_hanoi", "arguments": {"record_id": "LEA-1"}}]},
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    tools, questions = tmp_path / "tools.json", tmp_path / "questions.jsonl"
    tools.write_text(json.dumps(definitions([*FEW, *two_hundred()])), encoding="utf-8")
    questions.write_text(
        "\n".join(json.dumps(each) for each in QUESTIONS), encoding="utf-8"
    )
    return "eval", "select", "--tools", str(tools), "--questions", str(questions)


def test_the_table_tells_recall_by_number_of_tools(cli, files):
    lines = cli(*files, "--sizes", "10,100,9999").stdout.splitlines()
    assert lines[0].split() == ["strategy", "tools", "@1", "@3", "@5", "@10"]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["bm25", "10"],
        ["bm25", "100"],
        ["bm25", "205"],
    ]
    # Of the third question the first hit can be one of two tools only: (1 + 1 + .5 + 1) / 4.
    assert lines[3].split()[2:] == ["0.875", "1.000", "1.000", "1.000"]


def test_the_same_seed_gives_the_same_report_and_another_draws_other_tools(cli, files):
    one, again, other = (
        cli(*files, "--json", "--seed", seed).stdout for seed in ("1", "1", "2")
    )
    assert one == again
    assert json.loads(one)["seed"] != json.loads(other)["seed"]


def test_the_report_tells_how_deep_each_question_must_look(cli, files):
    report = json.loads(cli(*files, "--json").stdout)
    assert report["tools"] == 205
    assert [each["rank"] for each in report["questions"]] == [1, 1, 2, 1]
    assert report["points"][-1]["recall"]["5"] == 1.0


def test_the_plot_is_a_picture_with_a_line_for_each_strategy(cli, files, tmp_path):
    plot = tmp_path / "recall.svg"
    cli(*files, "--plot", str(plot))
    picture = ElementTree.parse(plot).getroot()
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"bm25", "recall@5", "205", "10"} <= set(texts)


def test_two_reports_are_compared(cli, files, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    (tmp_path / "tools.json").write_text(
        json.dumps(definitions([*FEW, *two_hundred()], get_weather="Look outside."))
    )
    old.write_text(cli(*files, "--json", "--sizes", "205").stdout, encoding="utf-8")
    (tmp_path / "tools.json").write_text(
        json.dumps(definitions([*FEW, *two_hundred()], get_weather="How warm it is."))
    )
    new.write_text(cli(*files, "--json", "--sizes", "205").stdout, encoding="utf-8")
    told = cli("eval", "select", "--compare", str(old), str(new)).stdout
    assert "bm25, 205 tools, @1" in told
    same = cli("eval", "select", "--compare", str(old), str(old)).stdout
    assert "+" not in same and "rank:" not in same


def test_a_model_is_asked_with_stand_ins_and_its_calls_are_judged(cli, files, tmp_path):
    def right(messages):
        wanted = next(each for each in QUESTIONS if each["query"] == messages[0].text)
        if "calls" in wanted:
            return call("approve_lease_hanoi", record_id="LEA-1")
        # of two wanted tools it calls one
        return [call(name) for name in wanted["tools"][:1]]

    with ScriptedServer([right, "Done."]) as server:
        model = ("--model", server.model)
        report = json.loads(cli(*files, "--json", *model).stdout)
        told = cli(*files, *model, "--most", "1").stdout
    assert [each["right_tools"] for each in report["answers"]] == [
        True,
        True,
        False,
        True,
    ]
    assert [each["right_calls"] for each in report["answers"]] == [
        None,
        None,
        None,
        True,
    ]
    assert "selector auto: right tools in 1 of 1; 200 input tokens a question" in told


def test_questions_are_made_of_examples_where_there_are_none(cli, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import handrail as hr\n"
        "@hr.tool(effect='read', examples=[{'city': 'Oslo'}])\n"
        "def get_weather(city: str) -> str:\n    'Get the weather of a city.'\n"
        "@hr.tool(effect='read')\n"
        "def get_order(order_id: str) -> str:\n    'Look an order up.'\n"
    )
    report = json.loads(
        cli("eval", "select", "--tools", str(tmp_path / "shop.py"), "--json").stdout
    )
    assert report["questions"] == [
        {
            "query": "Get the weather of a city. Oslo",
            "tools": ["get_weather"],
            "rank": 1,
        }
    ]


@pytest.mark.parametrize(("line", "said"), [
    ("{}", "question 1 is not of the form"),
    ('{"query": "?"}', "names no `tools`"),
    ('{"query": "?", "tools": ["get_wether"]}', "wants 'get_wether', which is none of the tools"),
    ("[", "line 1"),
    ("", "is empty"),
])  # fmt: skip
def test_a_question_that_cannot_be_asked_is_one_sentence(cli, files, line, said):
    Path(files[-1]).write_text(line, encoding="utf-8")
    result = cli(*files)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_strategy_that_needs_a_model_says_so(cli, files):
    result = cli(*files, "--strategy", "hybrid")
    assert (result.exit_code, "--embed MODEL@URL" in result.stderr) == (2, True)
