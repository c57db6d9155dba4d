"""The endpoints of `handrail serve`: a process of its own, with tokens, which is killed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import pytest

import handrail as hr
from handrail.serving.tokens import make_entry
from handrail.testing import ScriptedServer, call
from tests.handrail_server.endpoints.serving import ASK_USER, wait_until

TOOLS = '''
import time
from pathlib import Path
import handrail as hr

HERE = Path(__file__).parent

@hr.tool(effect="write", timeout_s=20)
def pay(amount: int) -> str:
    """Pay an amount."""
    with (HERE / "paid").open("a") as paid:
        paid.write(f"{amount}\\n")
    while not (HERE / "gate").exists():
        time.sleep(0.01)
    return "paid"

@hr.tool(effect="destructive")
def refund(amount: int) -> str:
    """Refund an amount."""
    with (HERE / "paid").open("a") as paid:
        paid.write(f"-{amount}\\n")
    return "refunded"
'''


@contextmanager
def serve(folder: Path, model: str, *options: str):
    """Run `handrail serve`; yield its address and the process."""
    (folder / "shop.py").write_text(TOOLS)
    (folder / "policy.toml").write_text("own_approval = true\n")
    command = [
        *(sys.executable, "-m", "handrail", "serve", "--json", "--http", "0"),
        *("--store", f"sqlite:///{folder}/runs.db"),
        *("--tools", f"{folder}/shop.py", "--model", model, *options),
        *("--policy", f"{folder}/policy.toml"),
    ]
    environ = {**os.environ, "OPENAI_API_KEY": "none"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        try:
            yield json.loads(process.stdout.readline())["url"], process
        finally:
            process.kill()


def say(messages):
    """Answer as the model of the shop: refund, and where the question says so, ask the caller."""
    answers = sum(isinstance(each, hr.AssistantMessage) for each in messages)
    asks = any(
        "ask me" in each.text for each in messages if isinstance(each, hr.UserMessage)
    )
    lines = [call("refund", amount=7), call("ask_user", question="Why?"), "Refunded."]
    if not asks:
        del lines[1]
    return lines[min(answers, len(lines) - 1)]


ENTRIES = {
    role: make_entry(f"{role}-person", "", role)
    for role in ("see", "approve", "administer")
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A server with tokens; its address, and its folder."""
    folder = tmp_path_factory.mktemp("shop")
    tokens = folder / "tokens.toml"
    tokens.write_text("".join(each.text for each in ENTRIES.values()))
    with (
        ScriptedServer([say]) as model,
        serve(folder, model.model, "--tokens", str(tokens)) as (url, _),
    ):
        yield url, folder


def paid(folder):
    """Return what was paid since this was asked last."""
    file = folder / "paid"
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return text


def client_of(url, token="none"):
    return openai.OpenAI(base_url=f"{url}v1", api_key=token, max_retries=0)


def test_another_server_takes_a_request_on_when_one_is_killed_and_pays_once(tmp_path):
    script = [call("pay", amount=7), lambda messages: messages[-1].result.text[:60]]
    body = {"messages": [{"role": "user", "content": "Pay 7."}]}
    key = {"idempotency-key": "order-7"}
    answers = []
    with (
        ScriptedServer(script) as model,
        serve(tmp_path, model.model) as (first, process),
        serve(tmp_path, model.model) as (second, _),
        client_of(second) as client,
    ):

        def send():
            answer = client.chat.completions.create(model="", **body, extra_headers=key)
            answers.append(answer)

        waiting = threading.Thread(target=send)
        with (
            pytest.raises(httpx2.TransportError),
            httpx2.stream(
                "POST",
                f"{first}v1/chat/completions",
                json={**body, "stream": True},
                headers=key,
            ) as stream,
        ):
            paid = tmp_path / "paid"
            wait_until(lambda: paid.exists() and paid.read_text())
            waiting.start()  # the same request, at another server: it waits for the first
            process.kill()  # by SIGKILL, in the middle of the call
            stream.read()
        waiting.join(30)
        send()
    assert len({each.id for each in answers}) == 1
    for answer in answers:
        assert "IN_DOUBT" in answer.choices[0].message.content
    assert paid.read_text() == "7\n"


def test_a_model_is_shown_by_its_name_which_has_slashes(shop):
    url, _ = shop
    with client_of(url, ENTRIES["approve"].token) as client:
        (model,) = client.models.list().data
        assert "/" in model.id
        assert client.models.retrieve(model.id).id == model.id


def test_a_call_is_approved_by_the_owner_of_the_token_alone(shop):
    url, folder = shop
    token = ENTRIES["approve"].token
    with client_of(url, token) as client:
        first = client.responses.create(input="Refund 7.")
        (request,) = first.output
        assert request.type == "mcp_approval_request"
        with (
            client_of(url, ENTRIES["administer"].token) as other,
            pytest.raises(openai.NotFoundError),
        ):
            other.responses.create(input="And?", previous_response_id=first.id)
        yes = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }
        second = client.responses.create(previous_response_id=first.id, input=[yes])
        assert second.output_text == "Refunded."
    shown = httpx2.get(
        f"{url}api/v1/runs/r_{first.id.split('_')[1]}",
        headers={"authorization": f"Bearer {token}"},
    )
    assert "approve-person" in shown.text
    assert paid(folder) == "-7\n"


def test_the_guard_of_the_server_stands_before_the_endpoints(shop):
    url, folder = shop

    def post(path, status, token="", content=b"{}", **headers):
        given = {"content-type": "application/json", **headers}
        if token:
            given["authorization"] = f"Bearer {token}"
        answer = httpx2.post(f"{url}{path}", content=content, headers=given)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["message"]

    token = ENTRIES["approve"].token
    paths = ("v1/responses", "v1/chat/completions", "agui", "v1/ui-messages")
    for path in paths:
        post(path, 401)
        post(path, 401, "wrong-wrong-wrong-wrong")
        post(path, 403, ENTRIES["see"].token)
        post(path, 403, token, origin="http://evil.example")
        post(path, 400, token, host="evil.example")
        post(path, 400, token)
    post("v1/responses", 413, token, b" " * 10_000_000)
    assert paid(folder) == ""


def test_a_run_that_is_approved_in_the_console_answers_the_next_message(shop):
    url, folder = shop
    token = ENTRIES["approve"].token
    headers = {"authorization": f"Bearer {token}"}
    with client_of(url, token) as client:
        messages = [{"role": "user", "content": "Refund 7, and ask me why."}]
        settings = {"model": "", "tools": [ASK_USER]}
        first = client.chat.completions.create(messages=messages, **settings)
        text = first.choices[0].message.content
        run_id = first.id.removeprefix("chatcmpl-")
        assert f"Look at it and decide: {url}#/runs/{run_id}" in text
        listed = httpx2.get(f"{url}api/v1/approvals", headers=headers).json()["items"]
        (question,) = (each for each in listed if each["run"] == run_id)
        decided = httpx2.post(
            f"{url}api/v1/approvals/{question['id']}",
            json={"verdict": "approve", "digest": question["digest"], "scope": "once"},
            headers=headers,
        )
        assert decided.status_code == 200
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": "Well?"},
        ]
        second = client.chat.completions.create(messages=messages, **settings)
        (asked,) = second.choices[0].message.tool_calls
        assert asked.function.name == "ask_user"  # the caller's tools are still there
    assert paid(folder) == "-7\n"


def test_the_curl_commands_of_the_page_do_what_it_says(shop):
    if shutil.which("curl") is None:
        pytest.skip("no curl is here")
    url, folder = shop
    page = Path(__file__).parents[3] / "docs/reference/endpoints.md"
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    token = ENTRIES["approve"].token

    def run(block: str, **variables: str) -> str:
        script = block.replace("http://127.0.0.1:8321/", url)
        return subprocess.check_output(
            ["bash", "-euo", "pipefail", "-c", script],
            env={**os.environ, "TOKEN": token, **variables},
            text=True,
        )

    ask, agree, chat, agui = blocks
    response = json.loads(run(ask))
    asked = response["output"][-1]
    assert asked["type"] == "mcp_approval_request"
    told = run(agree, RESPONSE=response["id"], ASKED=asked["id"])
    assert "event: response.completed" in told
    assert "refunded" in told
    assert "[handrail: the run r_" in run(chat)
    assert '"outcome": {"type": "interrupt"' in run(agui)
    assert paid(folder) == "-7\n"
