"""The support desk: what its database holds after whatever happened to the calls; and the ticket system's stand-in."""

import asyncio
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import monotonic

import httpx2
import pytest

import handrail as hr
from handrail.testing import ScriptedApprover, ScriptedModel, call
from handrail.testing.checklist import check
from handrail_toolbox.desk import Desk, SupportDesk
from stand_ins.desk import Fate, Jitter, TicketServer
from tests.stores.servers import psycopg, started

USERS = [{"user_id": "U1", "name": "Ann"}, {"user_id": "U2", "name": "李雷"}]


@pytest.fixture(scope="module")
def server():
    server = started()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    """An empty database in either engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/desk.db"
    server = request.getfixturevalue("server")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for (name,) in connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'desk_%'"
        ).fetchall():
            connection.execute(f"DROP TABLE {name} CASCADE")
    return server.dsn


@pytest.fixture
def tools(address):
    """The tools over two users, a code that five may redeem, and twenty cables."""
    tools = SupportDesk(address)
    filled(tools.desk)
    return tools


def filled(desk):
    desk.fill("users", USERS)
    desk.fill("promos", [{"code": "SPRING-26", "credit_cents": 500, "uses_left": 5}])
    desk.fill("items", [{"item": "cable", "price_cents": 900, "stock": 20}])
    return desk


def told(tools, name, arguments, **how):
    async def call():
        async with hr.Runtime(tools, **how) as runtime:
            return await runtime.call(name, arguments)

    return asyncio.run(call())


def context_of(key, tool="create_ticket"):
    """What a tool is told of a call that carries this key."""
    return hr.Context(
        None, "run", "call", tool, 1, monotonic() + 60, Event(), idempotency_key=key
    )


# ---------------------------------------------------------------------- what the tools do


def test_a_ticket_is_opened_listed_and_closed(tools):
    opened = told(
        tools,
        "create_ticket",
        {"user_id": "U2", "subject": "登录失败", "priority": "high"},
    ).value
    listed = told(tools, "list_tickets", {"user_id": "U2", "status": "open"}).value
    assert listed.rows == [
        {
            "ticket_id": opened["ticket_id"],
            "subject": "登录失败",
            "priority": "high",
            "status": "open",
        }
    ]
    told(tools, "close_ticket", {"ticket_id": opened["ticket_id"]})
    assert (
        told(tools, "list_tickets", {"user_id": "U2", "status": "open"}).value.rows
        == []
    )


def test_a_text_that_the_database_cannot_keep_leaves_nothing_in_doubt(tools):
    """Postgres keeps no NUL in a text; SQLite does."""
    result = told(
        tools,
        "create_ticket",
        {"user_id": "U1", "subject": "Login fails", "body": "a\0b"},
    )
    assert result.ok or result.failure.code == "INVALID_ARGUMENTS"


def test_a_ticket_that_is_asked_for_twice_with_one_key_is_one_ticket(address):
    desk = filled(Desk(address))
    answers = [
        desk.create_ticket(context_of("run/0/0"), "U1", subject)
        for subject in ("Login fails", "Login fails")
    ]
    assert answers[0] == answers[1]
    assert [row["ticket_id"] for row in desk.rows("tickets")] == [
        answers[0]["ticket_id"]
    ]


def test_two_wishes_of_the_same_words_are_two_tickets(tools):
    for _ in range(2):
        told(tools, "create_ticket", {"user_id": "U1", "subject": "Login fails"})
    assert len(tools.desk.rows("tickets")) == 2


def test_a_plan_is_changed_and_the_old_one_told(tools):
    assert (
        told(tools, "update_plan", {"user_id": "U1", "plan": "pro"}).value["before"]
        == "free"
    )
    assert [row["plan"] for row in tools.desk.rows("users")] == ["pro", "free"]


def test_an_order_takes_from_stock_and_undoing_puts_it_back_once(tools, tmp_path):
    model = ScriptedModel(
        [call("place_order", user_id="U1", item="cable", quantity=3), "Ordered."]
    )

    async def order_and_undo():
        async with hr.Runtime(tools, store=f"sqlite:///{tmp_path}/runs.db") as runtime:
            run = await runtime.run("Three cables for U1.", model=model)
            ordered = (
                tools.desk.rows("items")[0]["stock"],
                tools.desk.rows("orders")[0]["total_cents"],
            )
            for _ in range(2):
                await runtime.undo(run.id)
            return ordered

    assert asyncio.run(order_and_undo()) == (17, 2_700)
    assert tools.desk.rows("items")[0]["stock"] == 20
    assert [row["status"] for row in tools.desk.rows("orders")] == ["cancelled"]


def test_an_order_that_is_cancelled_twice_goes_back_into_stock_once(address):
    desk = filled(Desk(address))
    order = desk.place_order(context_of("1", "place_order"), "U1", "cable", 3)
    for _ in range(2):
        desk.cancel_order(result=order, user_id="U1", item="cable", quantity=3)
    assert desk.rows("items")[0]["stock"] == 20


def test_more_than_ten_pieces_need_a_person(tools):
    order = {"user_id": "U1", "item": "cable", "quantity": 11}
    refused = told(tools, "place_order", order, approver=ScriptedApprover([False]))
    assert (refused.failure.code, tools.desk.rows("orders")) == (
        hr.Code.NOT_APPROVED,
        [],
    )
    assert told(tools, "place_order", order, approver=ScriptedApprover([True])).ok


@pytest.mark.parametrize(("name", "arguments", "code"), [
    ("get_user", {"user_id": "U9"}, "USER_NOT_FOUND"),
    ("create_ticket", {"user_id": "U9", "subject": "Login fails"}, "USER_NOT_FOUND"),
    ("update_plan", {"user_id": "U9", "plan": "pro"}, "USER_NOT_FOUND"),
    ("redeem_promo", {"user_id": "U9", "code": "SPRING-26"}, "USER_NOT_FOUND"),
    ("redeem_promo", {"user_id": "U1", "code": "AUTUMN"}, "PROMO_CODE_NOT_FOUND"),
    ("close_ticket", {"ticket_id": "T9"}, "TICKET_NOT_FOUND"),
    ("place_order", {"user_id": "U1", "item": "sofa"}, "ITEM_NOT_FOUND"),
    ("update_plan", {"user_id": "U1", "plan": "gold"}, "INVALID_ARGUMENTS"),
    ("get_user", {"user_id": "U1; DROP TABLE desk_users"}, "INVALID_ARGUMENTS"),
    ("create_ticket", {"user_id": "U1' OR '1'='1", "subject": "Login fails"}, "INVALID_ARGUMENTS"),
])  # fmt: skip
def test_what_cannot_be_done_is_told_and_nothing_is_changed(
    tools, name, arguments, code
):
    before = {
        table: tools.desk.rows(table)
        for table in ("users", "tickets", "promos", "redemptions", "orders")
    }
    failure = told(tools, name, arguments).failure
    assert (failure.code, bool(failure.suggestion)) == (code, True)
    assert {table: tools.desk.rows(table) for table in before} == before


def test_text_of_a_ticket_is_never_read_as_sql(tools):
    subject = "x'); DROP TABLE desk_tickets; --"
    told(tools, "create_ticket", {"user_id": "U1", "subject": subject, "body": subject})
    assert [row["subject"] for row in tools.desk.rows("tickets")] == [subject]


def test_an_attempt_that_was_refused_does_not_keep_its_key(address):
    desk = filled(Desk(address))
    with pytest.raises(hr.NoEffect):
        desk.create_ticket(context_of("run/0/0"), "U9", "Login fails")
    desk.fill("users", [{"user_id": "U9", "name": "Eve"}])
    assert (
        desk.create_ticket(context_of("run/0/0"), "U9", "Login fails")["status"]
        == "open"
    )


# ---------------------------------------------------------------------- many at once, crashes, a database that is away


def at_once(works):
    """Do everything at once, each in a thread; return what came of each, an exception's code too."""
    ready = Barrier(len(works))

    def one(work):
        ready.wait(30)
        try:
            return work()
        except hr.ToolError as error:
            return error.failure.code

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(one, works))


def test_one_key_at_once_is_one_ticket(address):
    desk = filled(Desk(address))
    answers = at_once(
        [lambda: desk.create_ticket(context_of("run/0/0"), "U1", "Login fails")] * 8
    )
    assert (
        len({answer["ticket_id"] for answer in answers})
        == len(desk.rows("tickets"))
        == 1
    )


def test_a_code_is_redeemed_as_often_as_it_may_be_however_many_come_at_once(address):
    desk = filled(Desk(address))
    desk.fill("users", [{"user_id": f"V{n}", "name": "V"} for n in range(8)])
    works = [
        lambda n=n: desk.redeem_promo(context_of(f"{n}"), f"V{n}", "SPRING-26")
        for n in range(8)
    ]
    answers = at_once(works)
    assert Counter(answer if isinstance(answer, str) else "credited" for answer in answers) == {
        "credited": 5, "USED_UP": 3,
    }  # fmt: skip
    assert (len(desk.rows("redemptions")), desk.rows("promos")[0]["uses_left"]) == (
        5,
        0,
    )
    assert sum(row["credit_cents"] for row in desk.rows("users")) == 5 * 500


def test_a_user_redeems_a_code_once_in_whatever_run(tools):
    redeem = {"user_id": "U1", "code": "SPRING-26"}
    with hr.SyncRuntime(tools) as runtime:
        first, again = (
            runtime.call("redeem_promo", redeem),
            runtime.call("redeem_promo", redeem),
        )
    # a process that remembers nothing: the row does
    later = told(tools, "redeem_promo", redeem)
    assert (first.ok, again.replayed, later.failure.code) == (True, True, "REDEEMED")
    assert tools.desk.rows("users")[0]["credit_cents"] == 500


def test_stock_is_never_sold_twice(address):
    desk = filled(Desk(address))
    works = [
        lambda n=n: desk.place_order(
            context_of(f"{n}", "place_order"), "U1", "cable", 4
        )
        for n in range(8)
    ]
    answers = at_once(works)
    assert answers.count("OUT_OF_STOCK") == 3
    assert (desk.rows("items")[0]["stock"], len(desk.rows("orders"))) == (0, 5)


def test_many_who_open_an_empty_database_at_once_all_find_their_tables(address):
    assert (
        at_once([lambda: filled(Desk(address)).rows("users")[0]["name"]] * 6)
        == ["Ann"] * 6
    )


def test_whether_a_code_was_redeemed_can_be_asked(address):
    desk, asked = filled(Desk(address)), {"user_id": "U1", "code": "SPRING-26"}
    assert desk.verify_redemption(asked, context_of("")) == hr.NotFound()
    done = desk.redeem_promo(context_of(""), **asked)
    assert desk.verify_redemption(asked, context_of("")) == hr.Found(done)


@pytest.mark.proof
def test_a_ticket_survives_the_death_of_its_process(crash, tmp_path):
    def tickets():
        return len(Desk(f"sqlite:///{tmp_path}/desk.db").rows("tickets"))

    filled(Desk(f"sqlite:///{tmp_path}/desk.db"))
    tool = SupportDesk(f"sqlite:///{tmp_path}/desk.db")["create_ticket"]
    crash(tool, {"user_id": "U1", "subject": "Login fails"}, effects=tickets)


@pytest.mark.proof
def test_a_code_survives_the_death_of_its_process(crash, tmp_path):
    def redemptions():
        return len(Desk(f"sqlite:///{tmp_path}/desk.db").rows("redemptions"))

    filled(Desk(f"sqlite:///{tmp_path}/desk.db"))
    tool = SupportDesk(f"sqlite:///{tmp_path}/desk.db")["redeem_promo"]
    crash(tool, {"user_id": "U1", "code": "SPRING-26"}, effects=redemptions)


@pytest.mark.parametrize(
    "holding",
    ["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM desk_users"],
    ids=["writer", "reader"],
)
def test_a_desk_that_is_locked_says_so_and_nothing_is_done(tmp_path, holding):
    desk = filled(Desk(f"sqlite:///{tmp_path}/desk.db"))
    other = sqlite3.connect(tmp_path / "desk.db", isolation_level=None)
    # a reader lets write, but not commit
    held = [other.execute(statement) for statement in holding.split("; ")]
    short = hr.Context(
        None, "run", "call", "create_ticket", 1, 0.0, Event(), idempotency_key="k"
    )
    with pytest.raises(hr.NoEffect) as error:
        desk.create_ticket(short, "U1", "Login fails")
    held.clear()
    other.close()
    assert (error.value.failure.code, error.value.failure.retryable) == (
        "UNAVAILABLE",
        True,
    )
    assert desk.rows("tickets") == []


def test_a_commit_whose_answer_is_lost_is_in_doubt_and_not_called_undone(server):
    tools = SupportDesk(server.dsn)
    filled(tools.desk)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        # the server's process ends while it commits
        connection.execute("""
            CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON desk_tickets DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION die()""")
    try:
        failure = told(
            tools, "create_ticket", {"user_id": "U1", "subject": "Login fails"}
        ).failure
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("DROP FUNCTION die CASCADE")
    assert failure.code == hr.Code.IN_DOUBT


@pytest.mark.parametrize(
    "address",
    ["postgresql://canary:canary@127.0.0.1:1/x", "sqlite:////no/such/folder/canary.db"],
)
def test_a_desk_that_is_away_is_told_without_its_address(address):
    failure = told(SupportDesk(address), "get_user", {"user_id": "U1"}).failure
    assert (failure.code, "canary" in repr(failure)) == ("UNAVAILABLE", False)


@pytest.mark.parametrize(
    "address", ["", "sqlite:///", "mysql://canary@db/x", "desk.db"]
)
def test_an_address_that_cannot_be_used_is_an_error_at_the_start(address):
    with pytest.raises(hr.ConfigError) as error:
        SupportDesk(address)
    assert "canary" not in str(error.value)


def test_the_tools_pass_lint_and_the_checklist_without_a_finding():
    tools = SupportDesk("sqlite:///desk.db")
    assert (hr.lint(tools).findings, check(tools).missing) == ([], [])


# ---------------------------------------------------------------------- the ticket system's stand-in


def posted(server, key="k", **ticket):
    headers = {"Idempotency-Key": key} if key else {}
    return httpx2.post(f"{server.url}/tickets", json=ticket, headers=headers, timeout=5)


def test_a_key_names_one_ticket():
    with TicketServer() as server:
        first, again = posted(server, subject="a"), posted(server, subject="a")
        assert (first.status_code, again.status_code, again.json()) == (
            201,
            200,
            first.json(),
        )
        assert (
            again.headers["idempotent-replayed"] == "true"
            and again.headers["idempotency-key"] == "k"
        )
        assert posted(server, subject="b").status_code == 422
        assert (
            httpx2.get(f"{server.url}/tickets").json()
            == server.tickets
            == [first.json()]
        )


def test_without_a_key_each_request_is_a_ticket():
    with TicketServer() as server:
        posted(server, "", subject="a"), posted(server, "", subject="a")
        assert len(server.tickets) == 2


class Only(Jitter, frozen=True):
    """A network that does one thing to the first request."""

    first: Fate = Fate.ARRIVES

    def fate(self, number):
        return self.first if number == 0 else Fate.ARRIVES


@pytest.mark.parametrize(("fate", "made", "error"), [
    (Fate.REQUEST_LOST, 0, httpx2.RemoteProtocolError),
    (Fate.ANSWER_LOST, 1, httpx2.RemoteProtocolError),
    (Fate.ANSWER_LATE, 1, httpx2.ReadTimeout),
    (Fate.REQUEST_TWICE, 2, None),
    (Fate.ANSWER_TWICE, 1, None),
])  # fmt: skip
def test_each_misfortune_is_what_it_says(fate, made, error):
    with TicketServer(Only(first=fate)) as server, httpx2.Client() as client:
        try:
            client.post(
                f"{server.url}/tickets",
                json={},
                timeout=0.3 if fate is Fate.ANSWER_LATE else 5,
            )
            met = None
        except httpx2.TransportError as raised:
            met = type(raised)
        assert (met, len(server.tickets), server.fates) == (error, made, [fate])


def test_the_same_seed_is_the_same_network():
    fates = [Jitter(seed=3).fate(number) for number in range(2_000)]
    assert fates == [Jitter(seed=3).fate(number) for number in range(2_000)]
    assert all(
        80 < count < 160
        for fate, count in Counter(fates).items()
        if fate is not Fate.ARRIVES
    )
    assert set(fates) == set(Fate)


def test_a_network_without_jitter_delivers_everything():
    assert {Jitter(share=0.0).fate(number) for number in range(100)} == {Fate.ARRIVES}
