"""A tape plays what was recorded, does nothing else, and says loudly what is not on it."""

import asyncio
import json
import sys

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail.testing.cassettes import Cassette, NotOnTape
from tests.support.pytest_runs import run_pytest

KEY = "sk-proj-abcdefghij0123456789"
SCRIPT = [
    [call("find_order", order="7"), call("refund", order="7", amount=5)],
    "Refunded 5.",
]


class Desk:
    """What the tools touch, and how often."""

    def __init__(self):
        self.found, self.refunded = [], []
        self.tools = [
            hr.FunctionTool(self.find_order, effect="read"),
            hr.FunctionTool(
                self.refund, effect="write", key="refund:{order}", verify=self.look
            ),
        ]

    def find_order(self, order: str) -> dict:
        """Find an order."""
        self.found.append(order)
        if order == "404":
            raise hr.ToolError(
                "NO_ORDER", "There is no such order.", suggestion="Ask for its number."
            )
        return {"order": order, "api_key": KEY, "paid": 20.0}

    async def refund(self, order: str, amount: float = 1.0) -> str:
        """Refund an order."""
        self.refunded.append((order, amount))
        return "refunded"

    def look(self, arguments, context):
        raise AssertionError("nobody asks the world")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "desk.json"


def ran(file, script, *, record=False, question="Refund order 7.", **how):
    """A run with a tape; the desk is another one each time."""
    desk, cassette = Desk(), Cassette(file, record=record, secrets=["hunter2-hunter2"])
    with cassette.runtime(desk.tools, **how) as runtime:
        run = runtime.run(question, model=cassette.model(ScriptedModel(script)))
    cassette.close()
    return run, desk


def texts(run):
    return [
        message.result.text
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]


def test_a_tape_gives_back_the_run_and_nothing_happens(file):
    recorded, desk = ran(file, SCRIPT, record=True)
    assert (desk.found, desk.refunded) == (["7"], [("7", 5.0)])
    played, desk = ran(file, ["the model is not asked"])
    assert (desk.found, desk.refunded) == ([], [])
    assert (played.text, played.status) == ("Refunded 5.", "done")
    assert texts(played)[1] == texts(recorded)[1] == "refunded"


def test_the_same_run_gives_the_same_tape(file):
    ran(file, SCRIPT, record=True)
    first = file.read_bytes()
    ran(file, SCRIPT, record=True)
    assert file.read_bytes() == first


def test_a_tape_is_read_by_people_and_holds_no_secret(file):
    ran(
        file,
        SCRIPT,
        record=True,
        question="Refund order 7; the password is hunter2-hunter2.",
    )
    text = file.read_text()
    assert json.loads(text)["calls"] == [
        {
            "tool": "find_order",
            "arguments": {"order": "7"},
            "value": {"order": "7", "api_key": "***", "paid": 20.0},
        },
        {
            "tool": "refund",
            "arguments": {"order": "7", "amount": 5.0},
            "value": "refunded",
        },
    ]
    assert KEY not in text
    assert "hunter2" not in text
    assert max(map(len, text.splitlines())) < 120


def test_the_arguments_that_a_model_wrote_hold_no_secret_on_the_tape_and_are_played(
    file,
):
    @hr.tool(effect="read")
    def log_in(user: str, password: str) -> str:
        """Log in."""
        return "in"

    script = [
        call("log_in", user="a", password="correct horse"),
        hr.Turn("The password=correct-horse works."),
    ]
    for record in (True, False):
        cassette = Cassette(file, record=record)
        with cassette.runtime([log_in]) as runtime:
            assert (
                runtime.run("?", model=cassette.model(ScriptedModel(script))).status
                == "done"
            )
        cassette.close()
    assert "horse" not in file.read_text()
    assert (
        json.loads(file.read_text())["turns"][0]["calls"][0][2]
        == '{"user": "a", "password": "***"}'
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_a_tape_is_its_owner_s_alone(file):
    file.touch(mode=0o644)
    ran(file, SCRIPT, record=True)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_question_with_a_secret_is_found_on_the_tape(file):
    asked = "Refund order 7; the password is hunter2-hunter2."
    ran(file, SCRIPT, record=True, question=asked)
    assert ran(file, [], question=asked)[0].ok


def other_desk(file, tool, **arguments):
    """Play a tape with a runtime that is asked for a call by its own program."""
    desk, cassette = Desk(), Cassette(file)
    with cassette.runtime(desk.tools) as runtime:
        try:
            return desk, cassette, runtime.call(tool, arguments)
        except NotOnTape as error:
            return desk, cassette, error


def test_a_write_that_is_not_on_the_tape_ends_the_run_and_reaches_nobody(file):
    ran(file, SCRIPT, record=True)
    desk, cassette, error = other_desk(file, "refund", order="7", amount=6)
    assert desk.refunded == []
    assert str(error).startswith(
        'the write refund({"amount":6,"order":"7"}) is not on desk.json, and nothing was done'
    )
    with pytest.raises(NotOnTape):  # also when the program has swallowed it
        cassette.close()


def test_a_write_is_played_as_often_as_it_was_done(file):
    ran(file, SCRIPT, record=True)
    desk, cassette = Desk(), Cassette(file)
    with cassette.runtime(desk.tools) as runtime:
        assert runtime.call("refund", {"order": "7", "amount": 5}).value == "refunded"
        # the ledger knows its key
        assert runtime.call("refund", {"order": "7", "amount": 5}).replayed
    with (
        cassette.runtime(desk.tools) as another,
        pytest.raises(NotOnTape, match="the write refund"),
    ):
        another.call("refund", {"order": "7", "amount": 5})


def test_a_read_that_is_not_on_the_tape_ends_the_run_too(file):
    ran(file, SCRIPT, record=True)
    desk, _, error = other_desk(file, "find_order", order="8")
    assert isinstance(error, NotOnTape)
    assert "not played yet: find_order, refund" in str(error)
    assert desk.found == []


def test_a_question_that_was_not_asked_ends_the_run(file):
    ran(file, SCRIPT, record=True)
    with pytest.raises(NotOnTape, match=r"answer 1 of the model to 'Refund order 9\."):
        ran(file, SCRIPT, question="Refund order 9.")


def test_what_a_tool_refused_is_refused_again(file):
    script = [call("find_order", order="404"), "No such order."]
    recorded, _ = ran(file, script, record=True)
    played, desk = ran(file, [])
    assert texts(played) == texts(recorded)
    assert "NO_ORDER" in texts(played)[0]
    assert desk.found == []


def test_checks_and_policy_hold_while_a_tape_is_played(file):
    ran(file, SCRIPT, record=True)
    played, desk = ran(file, [], policy=hr.Policy(max_permission="read"))
    assert "NOT_PERMITTED" in texts(played)[1] or "UNKNOWN_TOOL" in texts(played)[1]
    assert desk.refunded == []


def test_what_a_person_changed_is_on_the_tape_as_the_tool_got_it(file):
    def approver(asked):
        return hr.Approval(True, arguments={"order": "7", "amount": 2})

    how = {
        "approver": approver,
        "policy": hr.Policy(rules=[hr.Rule(tool="refund", then="ask")]),
    }
    _, desk = ran(file, SCRIPT, record=True, **how)
    assert desk.refunded == [("7", 2.0)]
    played, desk = ran(file, [], **how)
    assert played.ok
    assert desk.refunded == []


def test_a_tape_plays_on_asyncio(file):
    ran(file, SCRIPT, record=True)

    async def main():
        desk, cassette = Desk(), Cassette(file)
        async with cassette.async_runtime(desk.tools) as runtime:
            run = await runtime.run(
                "Refund order 7.", model=cassette.model("openai:NAME")
            )
        cassette.close()
        return run, desk

    run, desk = asyncio.run(main())
    assert (run.text, desk.refunded) == ("Refunded 5.", [])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"v": 1, "turns": [{}], "calls": []}']
)
def test_what_is_no_tape_is_refused(file, text):
    file.write_text(text)
    with pytest.raises(hr.ConfigError, match="no cassette that can be read"):
        Cassette(file)


def test_a_tape_of_a_newer_version_is_refused(file):
    file.write_text('{"v": 99}')
    with pytest.raises(hr.ConfigError, match="newer handrail"):
        Cassette(file)


TEST = """
import handrail as hr
from handrail.testing import ScriptedModel, call

asked = []

@hr.tool(effect="write")
def pay(amount: int) -> str:
    "Pay."
    asked.append(amount)
    return "paid"

def test_paying(cassette):
    with cassette.runtime([pay]) as runtime:
        assert runtime.run("Pay 5.", model=cassette.model(ScriptedModel([call("pay", amount=5), "Paid."]))).ok
    assert bool(asked) is cassette.records
"""


@pytest.mark.slow
def test_the_fixture_records_when_told_and_plays_otherwise(tmp_path):
    (tmp_path / "test_desk.py").write_text(TEST)
    missing = run_pytest(folder=tmp_path)
    assert missing.returncode == 1
    assert "record it: pytest --record-cassettes" in missing.stdout
    assert run_pytest("--record-cassettes", folder=tmp_path).returncode == 0
    assert (tmp_path / "cassettes/test_desk.test_paying.json").exists()
    assert run_pytest(folder=tmp_path).returncode == 0
