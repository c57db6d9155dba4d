"""What stands beside a worker: its health, its schedule, and the files of `examples/deployment`."""

import asyncio
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import handrail as hr
from handrail.cli.commands.worker import command
from handrail.dispatch.hand_backs import AGAIN_S, HandBackLog
from handrail.dispatch.health import HealthServer
from handrail.errors import ConfigError, RunNameTaken, StoreUnavailable
from handrail.futures import result_now
from handrail.stores.retention import DAY_S, retention_from

yaml = pytest.importorskip("yaml")
pytest.importorskip("cronsim")

from handrail.dispatch.schedule import Scheduler, read_schedule  # noqa: E402

DEPLOYMENT = Path(__file__).parents[2] / "examples" / "deployment"
NOON = datetime(2026, 11, 23, 12, 0, 20, tzinfo=UTC)


# -- health -----------------------------------------------------------------------------------------------------------


async def asked(request: bytes, reason: str = "") -> str:
    server = HealthServer(lambda: reason)
    address = await server.listen("127.0.0.1", 0)
    try:
        host, port = address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer.decode()
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("request_line", "reason", "status", "body"),
    [
        ("GET /healthz HTTP/1.1", "", "200", "ok"),
        ("GET /healthz HTTP/1.1", "the store is gone", "200", "ok"),
        ("GET /readyz HTTP/1.1", "", "200", "ok"),
        (
            "GET /readyz?full=1 HTTP/1.1",
            "the store is gone",
            "503",
            "the store is gone",
        ),
        ("GET /runs HTTP/1.1", "", "404", "there are /healthz and /readyz"),
        ("POST /readyz HTTP/1.1", "", "405", "only GET is answered"),
    ],
)
def test_health_is_answered(request_line, reason, status, body):
    answer = asyncio.run(asked(f"{request_line}\r\nHost: x\r\n\r\n".encode(), reason))
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert answer.endswith(f"\r\n\r\n{body}\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"x" * 20_000,
        b"GET /healthz HTTP/1.1\r\nHost: " + b"x" * 9_000 + b"\r\n\r\n",
    ],
)
def test_garbage_gets_no_answer_and_does_no_harm(garbage, caplog):
    assert asyncio.run(asked(garbage)) == ""
    assert caplog.records == []


def test_a_worker_that_ends_says_nothing_of_those_who_are_connected(caplog):
    async def end_while_connected():
        server = HealthServer(lambda: "")
        address = await server.listen("127.0.0.1", 0)
        host, port = address.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        while len(asyncio.all_tasks()) == 1:  # until the server has the connection
            await asyncio.sleep(0)
        await server.close()
        writer.close()

    asyncio.run(end_while_connected())
    assert caplog.records == []


# -- what is logged ---------------------------------------------------------------------------------------------------


def test_the_same_hand_back_of_a_run_is_due_for_the_log_once_in_ten_minutes():
    now = 100.0
    log = HandBackLog(lambda: now)
    assert log.is_due("r", "no tool pay")
    assert log.is_due("other", "no tool pay")
    assert log.is_due("r", "no provider 'x'")
    now += AGAIN_S - 1
    assert not log.is_due("r", "no provider 'x'")
    now += 1
    assert log.is_due("r", "no provider 'x'")
    assert not log.is_due("r", "no provider 'x'")


def test_a_worker_remembers_the_hand_backs_of_the_last_runs_only():
    log = HandBackLog(lambda: 0.0)
    assert all(log.is_due(f"r{number}", "no tool pay") for number in range(1001))
    assert not log.is_due("r1000", "no tool pay")
    assert log.is_due("r0", "no tool pay")


# -- schedule ---------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


def entries(**fields):
    return read_schedule({"report": {"cron": "* * * * *", "question": "Go.", **fields}})


def test_each_tick_is_submitted_once_by_however_many_workers(tmp_path):
    place = f"sqlite:///{tmp_path}/handrail.db"
    clock = Clock()

    async def look():
        async with hr.Runtime(store=place) as one, hr.Runtime(store=place) as two:
            schedulers = [Scheduler(each, entries(), now=clock) for each in (one, two)]
            for _ in range(3):
                await asyncio.gather(*(each.submit_due() for each in schedulers))
                clock.now += timedelta(minutes=1)
            await schedulers[0].submit_due()
            again = Scheduler(one, entries(), now=clock)  # it was restarted
            assert await again.submit_due() == 0
            return sorted(each.run_id for each in result_now(one.store.list_runs()))

    assert asyncio.run(look()) == [
        "report-20261123T1200Z",
        "report-20261123T1201Z",
        "report-20261123T1202Z",
        "report-20261123T1203Z",
    ]


def test_another_schedule_of_the_same_name_is_told(tmp_path, caplog):
    place = f"sqlite:///{tmp_path}/handrail.db"

    async def submit(**fields):
        async with hr.Runtime(store=place) as runtime:
            return await Scheduler(runtime, entries(**fields), now=Clock()).submit_due()

    assert asyncio.run(submit()) == 1
    assert asyncio.run(submit()) == 0
    assert caplog.records == []
    assert asyncio.run(submit(question="Stop.")) == 0
    [record] = caplog.records
    assert "report did not submit the run report-20261123T1200Z" in record.message
    # another tenant's is another run
    assert asyncio.run(submit(question="Stop.", scope="acme")) == 1


def test_two_schedules_of_one_name_are_refused():
    two = [*entries(), *entries(question="Stop.")]
    with pytest.raises(ConfigError, match="two schedules are named 'report'"):
        Scheduler(Desk(), two)


class Desk:
    """Takes runs as a runtime does, unless its store is away."""

    def __init__(self):
        self.taken = []
        self.is_away = False

    async def submit(self, question, *, run_id, idempotent=False, **options):
        if self.is_away:
            raise StoreUnavailable("nobody answers")
        if run_id in self.taken:
            if idempotent:
                return run_id
            raise RunNameTaken(f"there is a run {run_id!r}")
        self.taken.append(run_id)
        return run_id


@pytest.mark.parametrize("gap", [timedelta(hours=8), timedelta(days=20_000)])
def test_a_worker_that_was_frozen_or_whose_clock_is_set_submits_the_last_minute_only(
    gap,
):
    clock = Clock()
    desk = Desk()
    scheduler = Scheduler(desk, entries(), now=clock)
    assert asyncio.run(scheduler.submit_due()) == 1
    clock.now += gap
    assert asyncio.run(scheduler.submit_due()) == 1


def test_a_clock_that_was_far_ahead_for_a_while_stops_no_schedule():
    clock = Clock()
    desk = Desk()
    scheduler = Scheduler(desk, entries(), now=clock)
    for now in (NOON + timedelta(days=400), NOON, NOON + timedelta(minutes=1)):
        clock.now = now
        asyncio.run(scheduler.submit_due())
    assert desk.taken[-1] == "report-20261123T1201Z"


def test_a_clock_that_jumps_back_and_forth_over_a_tick_submits_it_once():
    clock = Clock()
    desk = Desk()
    scheduler = Scheduler(desk, entries(), now=clock)
    for seconds in (0, -30, 0, -90, 10):
        clock.now = NOON + timedelta(seconds=seconds)
        asyncio.run(scheduler.submit_due())
    assert sorted(desk.taken) == [*dict.fromkeys(sorted(desk.taken))]
    assert desk.taken[0] == "report-20261123T1200Z"


def test_a_tick_that_the_store_did_not_take_is_submitted_once_it_answers():
    clock = Clock()
    desk = Desk()
    scheduler = Scheduler(desk, entries(cron="0 12 * * *"), now=clock)
    desk.is_away = True
    for _ in range(20):
        assert asyncio.run(scheduler.submit_due()) == 0
        clock.now += timedelta(seconds=30)
    desk.is_away = False
    assert asyncio.run(scheduler.submit_due()) == 1
    assert desk.taken == ["report-20261123T1200Z"]


def test_a_tick_is_read_in_its_time_zone():
    [entry] = entries(cron="0 7 * * *", time_zone="Europe/Berlin")
    assert entry.next_tick(NOON) == datetime(2026, 11, 24, 6, tzinfo=UTC)
    summer = datetime(2026, 7, 1, tzinfo=UTC)
    assert entry.next_tick(summer) == datetime(2026, 7, 1, 5, tzinfo=UTC)


def test_an_hour_that_comes_twice_has_one_tick():
    [entry] = entries(cron="30 2 * * *", time_zone="Europe/Berlin")
    night = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert len(entry.ticks(night, night + timedelta(days=1))) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cron": "0 7 * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "cannot be read"),
        ({"cron": "0 0 30 2 *"}, "cannot be read"),
        ({"cron": ""}, "has no `cron`"),
        ({"question": 7}, "write text in quotes"),
        ({"question": " \n"}, "has no `question`"),
        ({"priority": "high"}, "write a whole number"),
        ({"time_zone": "Mars/Olympus"}, "does not know"),
        ({"time_zone": "../../etc/passwd"}, "does not know"),
        ({"when": "now"}, "is not a setting of it"),
        ({"model": "gpt"}, "[schedule.report]: the model 'gpt' is no name"),
        ({"queue": ""}, "[schedule.report]: queue is ''"),
        ({"priority": 2**31}, "a whole number between -2,147,483,647 and"),
        ({"scope": "a/b"}, "[schedule.report]: scope is 'a/b'"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(fields, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        entries(**fields)


def test_a_name_that_would_be_another_tenants_is_refused():
    with pytest.raises(ConfigError, match="write letters"):
        read_schedule({"@acme/x": {"cron": "* * * * *", "question": "Go."}})
    with pytest.raises(ConfigError, match=r"a table .* is named 'a\\nb'"):
        read_schedule({"a\nb": {"cron": "* * * * *", "question": "Go."}})


# -- deployment -------------------------------------------------------------------------------------------------------


def check_words(words: list[str]) -> dict[str, object]:
    """Parse the words behind `handrail worker`; return its options."""
    context = command.make_context("worker", list(words), resilient_parsing=True)
    known = {name for each in command.params for name in each.opts}
    assert {word for word in words if word.startswith("--")} <= known
    return context.params


def test_a_worker_asks_the_model_that_the_environment_names(monkeypatch):
    monkeypatch.setenv("HANDRAIL_MODEL", "openai:NAME")
    assert check_words([])["model"] == "openai:NAME"
    assert check_words(["--model", "openai:OTHER"])["model"] == "openai:OTHER"


def dockerfile() -> dict[str, list[str]]:
    lines = (DEPLOYMENT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return {
        name: yaml.safe_load(line.removeprefix(name))
        for line in lines
        for name in ("ENTRYPOINT", "CMD")
        if line.startswith(name)
    }


def test_the_container_starts_a_worker_whose_health_is_asked_for():
    start = dockerfile()
    assert start["ENTRYPOINT"][:2] == ["handrail", "worker"]
    given = check_words([*start["ENTRYPOINT"][2:], *start["CMD"]])
    assert given["health"] == "0.0.0.0:8080"
    text = (DEPLOYMENT / "Dockerfile").read_text()
    assert "http://127.0.0.1:8080/healthz" in text
    copied = re.search(r"^COPY (.*) \./$", text, re.M)[1].split()
    assert all((DEPLOYMENT / each).exists() for each in copied)


def test_compose_waits_longer_than_the_worker_and_gives_it_its_store():
    compose = yaml.safe_load((DEPLOYMENT / "compose.yaml").read_text())
    worker = compose["services"]["worker"]
    given = check_words([*dockerfile()["ENTRYPOINT"][2:], *worker["command"]])
    assert int(worker["stop_grace_period"].removesuffix("s")) > given["grace_s"]
    assert worker["environment"]["HANDRAIL_STORE"].startswith("postgresql://")
    assert worker["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_kubernetes_asks_the_paths_that_a_worker_answers():
    deployment, budget = yaml.safe_load_all(
        (DEPLOYMENT / "kubernetes.yaml").read_text()
    )
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    given = check_words([*dockerfile()["ENTRYPOINT"][2:], *container["args"]])
    assert spec["terminationGracePeriodSeconds"] > given["grace_s"]
    paths = {
        container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"/healthz", "/readyz"}
    [port] = container["ports"]
    assert given["health"].endswith(f":{port['containerPort']}")
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_unit_starts_a_worker_and_waits_for_it():
    unit = (DEPLOYMENT / "handrail-worker@.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.M))
    program, name, *words = shlex.split(settings["ExecStart"].replace("%i", "1"))
    assert (program.rpartition("/")[2], name) == ("handrail", "worker")
    assert int(settings["TimeoutStopSec"]) > check_words(words)["grace_s"]


def test_the_example_has_tools_a_schedule_that_can_be_kept_and_a_period():
    import tomllib

    from handrail.cli.loading import tools_from

    assert len(tools_from([str(DEPLOYMENT / "shop.py")])) == 2
    tables = tomllib.loads((DEPLOYMENT / "schedule.toml").read_text())
    assert len(read_schedule(tables["schedule"])) == 1
    tables = tomllib.loads((DEPLOYMENT / "handrail.toml").read_text())
    assert retention_from(tables["retention"]).runs_s == 30 * DAY_S
