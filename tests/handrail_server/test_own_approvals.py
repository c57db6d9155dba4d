"""Whose approval counts at a server whose tokens name people."""

from contextlib import contextmanager

import pytest

import handrail as hr
from handrail_server.access import Access
from tests.engine.test_principals import Deadly, Died
from tests.handrail_server.served import (
    delete_order,
    get_order,
    scripted,
    serving,
    wait_until,
)
from tests.handrail_server.test_attacks import bearer, make_tokens, refused

PEOPLE = [(name, "", "administer") for name in ("anna", "ben", "cleo")]


@contextmanager
def open_place(folder, people=1):
    """Serve a file's store with a token for each person; yield the server, and what each sends with a request."""
    file, tokens = make_tokens(folder, *PEOPLE)
    tools = [get_order, delete_order.replace(write=hr.Write(required_approvals=people))]
    with serving(
        *tools,
        model=scripted(),
        store=f"sqlite:///{folder}/h.db",
        access=Access(file),
    ) as served:
        yield served, {name: {"headers": bearer(each)} for name, each in tokens.items()}


def decide(served, question, verdict, headers):
    body = {"verdict": verdict, "digest": question["digest"]}
    path = f"/api/v1/approvals/{question['id']}"
    return served.client.post(path, json=body, headers=headers)


def wait_for_question(served, who):
    return wait_until(lambda: served.get("/approvals", **who)["items"], bool)[0]


def test_who_started_a_run_with_a_token_does_not_approve_its_call(
    tmp_path,
):
    with open_place(tmp_path) as (served, who):
        served.post("/runs", {"question": "Delete A-1."}, 201, **who["anna"])
        question = wait_for_question(served, who["anna"])
        answer = decide(served, question, "approve", **who["anna"])
        refused(answer, 422, "not_possible")
        assert "somebody else must agree" in answer.json()["error"]["message"]
        assert decide(served, question, "approve", **who["ben"]).status_code == 200


def test_who_started_a_run_is_not_one_of_two_when_another_resumes_it_over_http(
    tmp_path,
):
    store = f"sqlite:///{tmp_path}/h.db"
    with pytest.raises(Died):
        hr.SyncRuntime(store=store).run(
            "Delete A-1.", model=Deadly([]), run_id="r", principal="anna"
        )
    with open_place(tmp_path, people=2) as (served, who):
        served.post("/runs/r/resume", **who["ben"])
        question = wait_for_question(served, who["ben"])
        answer = decide(served, question, "approve", **who["anna"])
        refused(answer, 422, "not_possible")
        assert "anna is whom the run acts for" in answer.json()["error"]["message"]
        agreed = [
            decide(served, question, "approve", **who[name]).json()["approval"]["state"]
            for name in ("ben", "cleo")
        ]
        assert agreed == ["open", "approved"]
