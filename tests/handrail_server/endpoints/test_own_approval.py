"""Whoever asks at an endpoint for a call that needs an approval cannot give it, and reads who can."""

import openai
import pytest

import handrail as hr
from handrail.testing import call
from tests.handrail_server.endpoints.serving import Told, serve_endpoints
from tests.handrail_server.endpoints.test_responses import approve, ask


@pytest.fixture
def desk(tmp_path):
    """Serve a tool that asks, by a policy that says nothing of own approvals; collect what was erased."""
    erased = []

    @hr.tool(effect="destructive")
    def erase(text: str) -> str:
        """Erase a note."""
        erased.append(text)
        return "erased"

    model = Told()
    model.scripts["go"] = [call("erase", text="keep"), "Erased."]
    store = f"sqlite:///{tmp_path}/runs.db"
    with serve_endpoints(hr.Runtime([erase], store=store), {"told": model}) as served:
        yield served, erased


def test_who_asks_in_chat_reads_that_somebody_else_must_approve(desk):
    served, erased = desk
    asked = [{"role": "user", "content": "go"}]
    first = served.client("anna").chat.completions.create(model="told", messages=asked)
    said = first.choices[0].message.content
    assert "It must be approved by somebody else than anna." in said
    assert not erased


def test_an_own_approval_is_refused_with_who_must_and_another_s_is_used(desk):
    served, erased = desk
    first = ask(served, "go")
    with pytest.raises(openai.ConflictError) as refused:
        ask(served, [approve(first.output[0])], previous_response_id=first.id)
    assert refused.value.code == "approval_not_counted"
    assert "`erase` must be approved by somebody else: anna is" in str(refused.value)
    assert not erased
    (question,) = served.runtime.blocking.approvals.list()
    served.runtime.blocking.approvals.approve(question.id, by="ben")
    ask(served, [approve(first.output[0])], previous_response_id=first.id)
    assert erased == ["keep"]


def test_who_asked_may_deny_their_own_call(desk):
    served, erased = desk
    first = ask(served, "go")
    ask(served, [approve(first.output[0], False)], previous_response_id=first.id)
    (question,) = served.runtime.blocking.approvals.list("denied")
    assert (question.by, erased) == ("anna", [])
