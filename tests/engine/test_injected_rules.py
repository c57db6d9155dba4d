"""Injected values in the rules of a tool: keys, resources, approvals and checks that know whose call it is."""

import enum
import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated
from uuid import UUID

import pydantic
import pytest

import handrail as hr
from handrail.errors import Code, MissingInjection, SetupError, ToolDefinitionError
from handrail.events import CallAdmitted
from handrail.futures import result_now
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import KINDS, Driver

Tenant = Annotated[str, hr.Injected(secret=False)]
Secret = Annotated[str, hr.Injected]

SECRET = "sk-very-secret-1"


@pytest.fixture(params=KINDS)
def open_driver(request):
    opened = []

    def open_one(*tools, **settings):
        opened.append(Driver(request.param, tools, settings))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def make_ticket(kind=Tenant, **declared):
    """Return a write whose key names its injected tenant, and the keys under which it ran."""
    keys = []

    def ticket(number: int, tenant, context: hr.Context) -> str:
        """Create a ticket."""
        keys.append(context.idempotency_key)
        return f"{len(keys)}"

    ticket.__annotations__["tenant"] = kind
    settings = {"effect": "write", "key": "ticket:{tenant}:{number}", **declared}
    return hr.FunctionTool(ticket, **settings), keys


def make_ticket_for(tenant, driver, *, run="r", number=1):
    return driver.call("ticket", {"number": number}, run=run, inject={"tenant": tenant})


# ---------------------------------------------------------------------- keys


def test_a_key_that_names_the_tenant_keeps_tenants_apart(open_driver):
    tool, keys = make_ticket()
    driver = open_driver(tool)
    results = [make_ticket_for(each, driver) for each in ("a", "b", "a")]
    assert keys == ["ticket:a:1", "ticket:b:1"]
    assert [result.replayed for result in results] == [False, False, True]
    assert [result.value for result in results] == ["1", "2", "1"]


@pytest.mark.parametrize("declared", [{}, {"write": hr.Write(repeat_window_s=3600.0)}])
@pytest.mark.parametrize(
    "rule",
    [
        {"key": "ticket:{tenant}:{number}"},
        {"key": lambda number, tenant: f"{tenant}/{number}"},
        {"key": None, "resource": "tenant:{tenant}"},
    ],
)
def test_an_equal_write_of_another_tenant_is_no_repeat(open_driver, rule, declared):
    tool, keys = make_ticket(**rule, **declared)
    driver = open_driver(tool)
    for run in ("r", "s"):
        for tenant in ("a", "b"):
            assert make_ticket_for(tenant, driver, run=run).ok
    is_found_again = rule["key"] is not None or declared
    assert len(keys) == (2 if is_found_again else 4)


def test_a_value_cannot_spell_the_key_of_another_tenant(open_driver):
    tool, keys = make_ticket(key="{tenant}:{number}:{tenant}")
    driver = open_driver(tool)
    tenants = ["a", "a:1", "a%3A1", "a/b", "", "null", "а", "a ", "é", "e\u0301"]
    for tenant in tenants:
        assert make_ticket_for(tenant, driver).ok
    assert len(set(keys)) == len(tenants)


def test_a_secret_is_in_no_key_and_its_digest_is_the_same_everywhere(
    open_driver, tmp_path
):
    tool, keys = make_ticket(Secret)
    store = SqliteStore(tmp_path / "h.db")
    driver = open_driver(tool, store=store)
    assert make_ticket_for(SECRET, driver).ok
    assert make_ticket_for("sk-very-secret-2", driver).ok
    assert make_ticket_for(SECRET, driver, run="s").replayed
    # sha256 of the canonical JSON, which is the text in quotes
    assert keys[0] == "ticket:secret_15fac6a24b08591beb21144796c85161:1"
    assert [each.key for each in driver.told(CallAdmitted)] == [*keys, keys[0]]
    store.close()
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())


def test_a_key_function_that_takes_a_secret_is_digested_whole(open_driver):
    tool, keys = make_ticket(
        Secret, key=lambda number, tenant: f"{tenant.upper()}:{number}"
    )
    driver = open_driver(tool)
    for tenant in (SECRET, "other"):
        assert make_ticket_for(tenant, driver).ok
    assert all(re.fullmatch("secret_[0-9a-f]{32}", key) for key in keys)
    assert len(set(keys)) == 2


class Plan(enum.Enum):
    FREE = "free"


@dataclass
class User:
    tenant: str
    token: pydantic.SecretStr


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (7, "7"),
        (None, "null"),
        (Plan.FREE, "free"),
        (date(2026, 11, 1), "2026-11-01"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pydantic.SecretStr("s1"), "s1"),
        (b"\x01", "01"),
    ],
)
def test_a_value_stands_in_a_key_as_its_own_text(open_driver, value, part):
    tool, keys = make_ticket()
    assert make_ticket_for(value, open_driver(tool)).ok
    assert keys == [f"ticket:{part}:1"]


def test_a_field_of_an_injected_object_stands_in_a_key(open_driver):
    tool, keys = make_ticket(key="{tenant.tenant}:{tenant.token}:{number}")
    driver = open_driver(tool)
    for token in ("t1", "t2"):
        user = User("acme", pydantic.SecretStr(token))
        assert make_ticket_for(user, driver).ok
    assert keys == ["acme:t1:1", "acme:t2:1"]


def test_a_value_without_a_text_is_refused_to_the_caller_before_anything_runs(
    open_driver,
):
    tool, keys = make_ticket()
    driver = open_driver(tool)
    with pytest.raises(SetupError, match="injected `tenant` holds a object"):
        make_ticket_for(object(), driver)
    with pytest.raises(MissingInjection, match="needs `tenant`"):
        driver.call("ticket", {"number": 1})
    assert keys == []


def test_the_model_is_asked_for_its_own_part_of_a_key_only(open_driver):
    def ticket(tenant: Tenant, number: int = 0, part: str | None = None) -> str:
        """Create a ticket."""
        raise AssertionError

    tool = hr.FunctionTool(ticket, effect="write", key="{tenant}:{part.id}")
    result = open_driver(tool).call("ticket", {"part": "x"}, inject={"tenant": "a"})
    assert result.failure.code == Code.INVALID_ARGUMENTS
    assert "tenant" not in result.text


def test_a_model_cannot_send_what_stands_in_the_key(open_driver):
    tool, keys = make_ticket()
    forged = {"number": 1, "tenant": "b"}
    result = open_driver(tool).call("ticket", forged, inject={"tenant": "a"})
    assert (result.failure.code, keys) == (Code.INVALID_ARGUMENTS, [])


# ---------------------------------------------------------------------- the other rules


def test_a_resource_that_names_the_tenant_is_the_tenants_own(open_driver):
    tool, _ = make_ticket(resource=["tenant:{tenant}", "user:{tenant.id}"])
    driver = open_driver(tool)
    assert make_ticket_for({"id": "u1"}, driver).ok
    rules = tool.with_injected({"tenant": {"id": "u1"}})
    assert [each.key for each in rules.resolve_resources({"number": 1})] == [
        'tenant:{"id"%3A"u1"}',
        "user:u1",
    ]


@pytest.mark.parametrize(
    "approve", ["amount > limit", lambda amount, limit: amount > limit]
)
def test_a_condition_for_approval_looks_at_what_the_caller_injects(
    open_driver, approve
):
    @hr.tool(effect="write", approve=approve)
    def pay(amount: int, limit: Annotated[int, hr.Injected]) -> str:
        """Pay."""
        return f"paid {amount}"

    driver = open_driver(pay)
    for limit, is_asked in ((100, True), (200, False)):
        result = driver.call("pay", {"amount": 150}, inject={"limit": limit})
        assert result.ok is not is_asked
        if is_asked:
            assert result.failure.code == Code.NOT_APPROVED


def test_a_rule_of_the_tool_looks_at_what_the_caller_injects(open_driver):
    def check(amount, tenant):
        return None if tenant == "acme" else f"{tenant} pays nothing"

    @hr.tool(effect="write", check=check)
    def pay(amount: int, tenant: Tenant, note: Secret) -> str:
        """Pay."""
        return f"paid {amount}"

    driver = open_driver(pay)
    for tenant, code in (("acme", None), ("globex", Code.RULE_VIOLATED)):
        inject = {"tenant": tenant, "note": "x"}
        result = driver.call("pay", {"amount": 1}, inject=inject)
        assert (result.failure and result.failure.code) == code


def test_a_rate_is_counted_for_each_injected_tenant(open_driver):
    tool, _ = make_ticket(
        limits=hr.Limits(rate="1/h", rate_key="{tenant}"), timeout_s=1
    )
    driver = open_driver(tool)
    codes = []
    for number, tenant in enumerate("aab"):
        result = make_ticket_for(tenant, driver, number=number)
        codes.append(result.failure and result.failure.code)
    assert codes == [None, Code.RATE_LIMITED, None]


def test_a_policy_of_ones_own_judges_by_the_condition_with_injected_values(
    open_driver,
):
    class Office(hr.Policy, frozen=True):
        def judge(self, tool, arguments):
            return super().judge(tool, dict(arguments))

    tool, _ = make_ticket(approve="tenant == 'b'")
    driver = open_driver(tool, policy=Office())
    assert make_ticket_for("a", driver).ok
    assert make_ticket_for("b", driver).failure.code == Code.APPROVAL_PENDING


def test_an_approval_of_one_tenants_write_is_not_used_for_anothers(
    open_driver, tmp_path
):
    tool, keys = make_ticket(approve=True)
    store = SqliteStore(tmp_path / "h.db")
    driver = open_driver(tool, store=store)
    make_ticket_for("a", driver)
    (question,) = result_now(store.list_approvals())
    result_now(store.decide(question.id, granted=True, by="anna"))
    pending = make_ticket_for("b", driver)
    assert pending.failure.code == Code.APPROVAL_PENDING
    assert make_ticket_for("a", driver).ok
    assert keys == ["ticket:a:1"]
    store.close()


# ---------------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    "setting",
    [
        {"key": "t:{tenent}"},
        {"resource": "t:{tenent}"},
        {"approve": "tenent == 'a'"},
        {"limits": hr.Limits(rate="1/s", rate_key="{tenent}")},
        {"key": "t:{context}"},
    ],
)
def test_a_rule_that_names_neither_an_argument_nor_an_injected_value_is_refused(
    setting,
):
    tool, _ = make_ticket(**setting)
    with pytest.raises(ToolDefinitionError, match="which is none of its parameters"):
        hr.SyncRuntime([tool])


def test_a_template_of_what_follows_cannot_look_at_injected_values():
    tool, _ = make_ticket()
    follow = hr.FunctionTool(lambda number: None, name="f", parameters={})
    with pytest.raises(ToolDefinitionError, match="`then` looks at `tenant`"):
        hr.SyncRuntime([tool.replace(then=hr.Then(follow, {"number": "{tenant}"}))])


# ---------------------------------------------------------------------- later


def test_a_run_is_resumed_forked_and_taken_back_with_the_same_injected_values(
    open_driver, tmp_path
):
    undone = []

    def take_back(number, tenant, result):
        undone.append((number, tenant))

    tool, _ = make_ticket(
        Secret, write=hr.Write(compensate=take_back), approve="number == 2"
    )
    store = f"sqlite:///{tmp_path}/h.db"
    script = [call("ticket", number=1), call("ticket", number=2), "Done."]
    inject = {"tenant": SECRET}
    driver = open_driver(tool, store=store)
    run = driver.run("Go.", model=ScriptedModel(script), run_id="mine", inject=inject)
    assert run.status == "waiting"
    for verb in ("resume", "undoable", "undo"):
        with pytest.raises(MissingInjection):
            options = {"model": ScriptedModel([])} if verb == "resume" else {}
            driver.start(verb, "mine", **options).result(20)
    (write,) = driver.start("undoable", "mine", inject=inject).result(20)
    assert (write.tool, write.arguments) == ("ticket", {"number": 1})
    assert driver.start("undo", "mine", inject=inject).result(20)[0].ok
    assert undone == [(1, SECRET)]
    fork = driver.start(
        "fork", "mine", at_turn=1, model=ScriptedModel(["Over."]), inject=inject
    ).result(20)
    assert fork.text == "Over."
