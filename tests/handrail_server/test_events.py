"""Events over HTTP: in order, from where a listener left off, and to each at its own pace."""

import asyncio
import json
import threading

import pytest

from handrail.events import HttpExchange, ModelAsked, RunEnded, Streamed
from handrail.history import run_moments
from handrail.history.run_moments import RecentMoments
from handrail.messages import ArgumentsDelta
from handrail.serving.tokens import make_entry
from handrail_server import event_routes
from handrail_server import hub as hubs
from handrail_server.access import Access
from handrail_server.hub import EventHub
from tests.handrail_server.served import scripted, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = f"sqlite:///{tmp_path_factory.mktemp('events')}/h.db"
    with serving(model=scripted(), store=store) as served:
        yield served


class Stream:
    """What a listener got, event by event."""

    def __init__(self, answer):
        self._lines = answer.iter_lines()

    def __iter__(self):
        event = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name in ("id", "event", "data"):
                event[name] = value
            elif not line and "event" in event:
                yield event
                event = {}


def until(stream, name):
    events = []
    for event in stream:
        events.append(event)
        if event["event"] == name:
            return events
    raise AssertionError(f"the stream ended without {name}: {events}")


def test_a_listener_hears_of_a_run_from_its_first_event_to_its_last(served):
    before = served.get("/")["last_event"]
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    with served.client.stream(
        "GET", f"/api/v1/runs/{run}/events", params={"after": before}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = until(Stream(answer), "run_ended")
    names = [each["event"] for each in events]
    assert names[0] == "run_started"
    assert {
        "model_asked",
        "model_answered",
        "call_admitted",
        "call_finished",
        "approval_asked",
    } <= set(names)
    numbers = [int(each["id"]) for each in events]
    assert numbers == sorted(set(numbers))
    body = json.loads(events[0]["data"])
    assert (body["run_id"], body["id"]) == (run, numbers[0])
    assert body["at"].endswith("Z")

    # who comes back with the number of the last event hears what followed
    with served.client.stream(
        "GET", "/api/v1/events", headers={"last-event-id": str(numbers[2])}
    ) as answer:
        again = until(Stream(answer), "run_ended")
    assert [each["id"] for each in again] == [each["id"] for each in events[3:]]


def test_a_page_says_up_to_which_event_it_is_true(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    page = served.run_until(run, "waiting")
    with served.client.stream(
        "GET", f"/api/v1/runs/{run}/events", params={"after": page["last_event"]}
    ) as answer:
        served.deployment.hub.publish("mark", run)
        names = [each["event"] for each in until(Stream(answer), "mark")]
    assert "call_finished" not in names


async def test_a_slow_listener_is_dropped_and_slows_nobody(monkeypatch):
    monkeypatch.setattr(hubs, "MOST_WAITING", 10)
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    quick, slow = hub.listen(), hub.listen()
    slow_chunks = aiter(slow)
    quick_chunks = aiter(quick)
    assert await anext(slow_chunks) == await anext(quick_chunks) == b"retry: 1000\n\n"
    heard = b""
    for turn in range(30):
        hub.observer()(ModelAsked(turn, 1, 1, run_id="r_1"))
        heard += await anext(quick_chunks)
    assert heard.count(b"event: model_asked") == 30
    assert hub.listeners == 1
    assert b"event: dropped" in await anext(slow_chunks)
    with pytest.raises(StopAsyncIteration):
        await anext(slow_chunks)


async def test_what_a_listener_has_missed_for_good_is_said(monkeypatch):
    monkeypatch.setattr(hubs, "MOST_KEPT_BYTES", 1000)
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    first = hub.last
    for turn in range(50):
        hub.observer()(ModelAsked(turn, 1, 1, run_id="r_1"))
    # a later number is of before the clock was set back, and the server started again
    for after in (first, hub.last + 1):
        chunks = aiter(hub.listen(after=after))
        await anext(chunks)
        assert b"event: missed" in await anext(chunks)
    hub.close()


async def test_a_listener_of_one_run_misses_none_of_it_for_the_events_of_others():
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    first = hub.last
    hub.publish("mine", "r_1")
    for _ in range(hubs.MOST_WAITING + 1):
        hub.publish("theirs", "r_2")
    mine = aiter(hub.listen(after=first, run="r_1"))
    await anext(mine)
    assert b"event: mine" in await anext(mine)
    # of all runs there is more than a listener may be behind: it hears so first
    everything = aiter(hub.listen(after=first))
    await anext(everything)
    assert b"event: missed" in await anext(everything)
    hub.close()


def test_a_listener_whose_token_was_revoked_hears_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(event_routes, "PROOF_HOLDS_S", 0.0)
    one, other = (make_entry(name, role="administer") for name in ("anna", "ben"))
    file = tmp_path / "tokens.toml"
    file.write_text(one.text + other.text)
    with serving(access=Access(file)) as served:
        headers = {"authorization": f"Bearer {one.token}"}
        with served.client.stream("GET", "/api/v1/events", headers=headers) as answer:
            lines = answer.iter_lines()
            next(lines)
            served.deployment.hub.publish("first")
            for line in lines:
                if line == "event: first":
                    break
            file.write_text(other.text)
            served.deployment.hub.publish("second")
            assert "event: second" not in list(lines)


async def test_a_thousand_listen_at_once_and_each_hears_all():
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    listeners = [aiter(hub.listen()) for _ in range(1000)]
    for each in listeners:
        await anext(each)
    observe = hub.observer()

    def drive():  # the thread of a run, as in a `SyncRuntime`
        for turn in range(100):
            observe(ModelAsked(turn, 1, 1, run_id="r_1"))
        observe(RunEnded("r_1", "done", ""))

    thread = threading.Thread(target=drive)
    thread.start()

    async def hear(chunks):
        heard = b""
        while b"event: run_ended" not in heard:
            heard += await anext(chunks)
        return heard.count(b"\nevent: model_asked")

    assert set(await asyncio.gather(*map(hear, listeners))) == {100}
    thread.join()


async def test_a_tenant_hears_nothing_of_another():
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    acme = aiter(hub.listen(tenant="acme"))
    await anext(acme)
    hub.observer("other")(ModelAsked(1, 1, 1, run_id="r_1"))
    hub.observer("acme")(ModelAsked(1, 1, 1, run_id="r_2"))
    heard = await anext(acme)
    assert b"@acme/r_2" in heard and b"other" not in heard


async def test_secrets_stay_masked_in_events():
    from handrail.calls import ToolCall
    from handrail.events import CallAdmitted

    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    chunks = aiter(hub.listen())
    await anext(chunks)
    call = ToolCall("c1", "login", '{"password": "hunter2-hunter2"}')
    hub.observer()(CallAdmitted(call, {"password": "hunter2-hunter2"}, run_id="r_1"))
    heard = await anext(chunks)
    assert b"hunter2" not in heard and b"***" in heard


async def test_no_event_has_a_secret_in_pieces():
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    chunks = aiter(hub.listen())
    await anext(chunks)
    observe = hub.observer()
    for piece in ('{"password": "', "hunter2-hu", 'nter2"}'):
        observe(Streamed(ArgumentsDelta(0, "login", piece), run_id="r_1"))
    sent = {"method": "POST", "url": "http://m", "headers": {}, "status": 200}
    observe(HttpExchange(**sent, body="hunter2-hu", answer="nter2", run_id="r_1"))
    observe(ModelAsked(1, 1, 1, run_id="r_1"))
    heard = b""
    while b"model_asked" not in heard:
        heard += await anext(chunks)
    assert b"http_exchange" in heard and b"nter2" not in heard


def test_of_requests_to_models_only_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr(run_moments, "MOST_EXCHANGE_CHARS", 1000)
    moments = RecentMoments()
    for turn in range(10):
        for run in ("r_1", "r_2"):
            body = f"{turn}" * 150
            exchange = HttpExchange("POST", "http://m", {}, body, 200, "", run_id=run)
            moments.add(run, turn, exchange)
    kept = [moments.exchanges_of(run) for run in ("r_1", "r_2")]
    assert sum(map(len, kept)) == 6
    assert kept[1][-1][1].body[0] == "9"
