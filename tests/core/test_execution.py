"""The life of one call: what happens in which order, and what the model is told of every way it may go."""

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import BaseModel, field_validator

from handrail import logs
from handrail.calls import ToolCall
from handrail.core.admission import ParsedCall, admit, parse_call
from handrail.core.policy import Decision, Policy, Rule, Verdict
from handrail.core.writes import LEASE_BEYOND_TIMEOUT_S, LONGEST_LEASE_S
from handrail.effects import (
    Approval,
    AskHuman,
    CallCancelled,
    Claimed,
    ClaimState,
    End,
    Found,
    Invoke,
    Keep,
    NotFound,
    Raised,
    Reserve,
    Returned,
    Settle,
    Unfinished,
    Unknown,
    Verify,
    Wait,
)
from handrail.errors import (
    Code,
    Failure,
    FarFailure,
    NoEffect,
    StoreUnavailable,
    ToolDefinitionError,
    ToolError,
)
from handrail.events import AttemptFailed
from handrail.tools import keys
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Write
from handrail.tools.toolset import Toolset
from tests.support.effect_script import World, admitted


def look_up(city: str) -> str:
    """Look something up."""
    return city


def refund(order: str, amount: float) -> str:
    """Give money back."""
    return f"{amount} for {order}"


def reading(**declared) -> FunctionTool:
    return FunctionTool(look_up, effect="read", **declared)


def writing(**declared) -> FunctionTool:
    return FunctionTool(refund, **{"effect": "write", **declared})


def verifying(order, amount):
    """Stands for a look at the far side; the world answers in its place."""


ORDER_881 = {"order": "881", "amount": 1}
BY_KEY = {"replay": "key", "key": "refund:{order}"}
BY_VERIFY = {"verify": verifying}
ONE_REQUEST = {"write": Write(one_request=True)}


def refunded(world: World, **declared):
    """Carry a refund in that world, and return its result."""
    return world.carry(admitted(writing(**declared), order="881", amount=20))


# ---------------------------------------------------------------------- the order of the effects


@pytest.mark.parametrize(("made", "kinds"), [
    # a read touches no ledger
    (reading(), "Invoke"),
    (reading(resource="city:{city}"), "Reserve Invoke"),
    (reading(approve=True), "AskHuman Invoke"),
    (writing(), "Claim Invoke Settle"),
    # undeclared counts as a write
    (writing(effect=None), "Claim Invoke Settle"),
    (writing(resource="order:{order}"), "Reserve Claim Invoke Settle"),
    (writing(approve=True, resource="order:{order}"), "AskHuman Reserve Claim Invoke Settle"),
    # high risk asks by itself
    (writing(effect="destructive"), "AskHuman Claim Invoke Settle"),
])  # fmt: skip
def test_approval_comes_before_resources_before_the_claim_before_the_start(made, kinds):
    world = World()
    arguments = (
        {"city": "Bern"} if made.fn is look_up else {"order": "881", "amount": 20}
    )
    world.carry(admitted(made, **arguments))
    assert " ".join(world.kinds) == kinds


@pytest.mark.parametrize(("answer", "code"), [
    # nobody is there: it waits, it does not proceed
    (None, Code.APPROVAL_PENDING),
    (Approval(False), Code.NOT_APPROVED),
    # edited, and still denied
    (Approval(False, arguments={"order": "881", "amount": 1}), Code.NOT_APPROVED),
])  # fmt: skip
def test_a_call_that_nobody_approved_claims_nothing_and_starts_nothing(answer, code):
    world = World(AskHuman=answer)
    result = refunded(world, approve=True, resource="order:{order}")
    assert (world.kinds, result.failure.code, result.attempts) == (
        ["AskHuman"],
        code,
        0,
    )


def test_a_person_sees_the_exact_arguments_the_risk_and_the_reason():
    world = World()
    refunded(world, approve="amount > 10")
    (asked,) = world.seen(AskHuman)
    assert (asked.arguments, asked.risk) == ({"order": "881", "amount": 20}, "medium")
    assert "amount > 10" in asked.reason
    assert asked.description == "Give money back."


def test_the_reason_of_a_denial_reaches_the_model():
    result = refunded(
        World(AskHuman=Approval(False, reason="ask accounting first")), approve=True
    )
    assert "ask accounting first" in result.failure.message


def test_a_call_that_never_gets_its_resource_was_not_started_and_may_be_tried_again():
    world = World(Reserve=False)
    result = refunded(world, resource="order:{order}")
    assert world.kinds == ["Reserve"]
    assert (result.failure.code, result.failure.retryable, result.attempts) == (
        Code.TIMEOUT,
        True,
        0,
    )


# ---------------------------------------------------------------------- admission


def test_a_call_without_a_tool_is_refused_before_its_arguments_are_looked_at():
    refusal = parse_call(
        ToolCall("c1", "lookup", "not json"), Toolset([look_up]), "calls"
    )
    assert (refusal.code, "`look_up`" in refusal.suggestion) == (
        Code.UNKNOWN_TOOL,
        True,
    )


def test_the_rule_is_not_asked_about_arguments_that_the_schema_refuses():
    asked = []
    strict = writing(check=lambda **bound: asked.append(bound))
    refusal = admit(
        ParsedCall(ToolCall("c1", "refund"), strict, {"order": 7}), Policy()
    )
    assert (refusal.code, asked) == (Code.INVALID_ARGUMENTS, [])


def test_the_policy_is_not_asked_about_arguments_that_break_the_rule():
    strict = writing(
        check=lambda order, amount: "only whole amounts" if amount % 1 else None
    )
    nothing_allowed = Policy(rules=[Rule(then="deny")])
    refusal = admit(
        ParsedCall(ToolCall("c1", "refund"), strict, {"order": "881", "amount": 0.5}),
        nothing_allowed,
    )
    assert (refusal.code, refusal.message) == (Code.RULE_VIOLATED, "only whole amounts")


def test_a_call_that_the_policy_denies_is_told_why():
    policy = Policy(rules=[Rule("refund", then="deny", reason="no refunds on Sunday")])
    refusal = admit(
        ParsedCall(ToolCall("c1", "refund"), writing(), {"order": "881", "amount": 1}),
        policy,
    )
    assert (refusal.code, "no refunds on Sunday" in refusal.message) == (
        Code.NOT_PERMITTED,
        True,
    )


def fails(order, amount):
    return {}["canary"]


def breaks_off(order, amount):
    raise SystemExit


def takes_less(order):
    """Cannot be called as it is: the tool has two parameters."""


class Fails:
    """A function of an instance."""

    def __call__(self, order, amount):
        return json.loads("canary")


@pytest.mark.parametrize("function", [fails, breaks_off, Fails()])
@pytest.mark.parametrize("setting", ["check", "approve", "key"])
def test_a_rule_that_raises_does_not_allow(setting, function):
    refusal = admit(
        ParsedCall(ToolCall("c1", "refund"), writing(**{setting: function}), ORDER_881),
        Policy(),
    )
    assert refusal.code == Code.INTERNAL_ERROR
    assert "canary" not in str(refusal.as_json())


@pytest.mark.parametrize("setting", ["check", "approve", "key"])
def test_the_log_names_the_setting_that_raised_and_the_line_of_its_author(
    setting, caplog
):
    told = []
    admit(
        ParsedCall(ToolCall("c1", "refund"), writing(**{setting: fails}), ORDER_881),
        Policy(),
        tell=told.append,
    )
    line = fails.__code__.co_firstlineno + 1
    assert f"refund was not admitted because its `{setting}` raised" in caplog.text
    assert f"KeyError in fails (test_execution.py:{line})" in caplog.text
    assert f"`{setting}` raised: KeyError" in told[0].reason


def test_the_log_names_the_author_s_file_also_where_a_library_raised_or_the_function_was_never_entered(
    caplog,
):
    def parses(order, amount):
        return json.loads("canary")

    tool = writing(check=parses)
    admit(ParsedCall(ToolCall("c1", "refund"), tool, ORDER_881), Policy())
    assert (
        f"in parses (test_execution.py:{parses.__code__.co_firstlineno + 1})"
        in caplog.text
    )
    logs.log_exception("it raised", TypeError(), takes_less)
    assert (
        f"TypeError in takes_less (test_execution.py:{takes_less.__code__.co_firstlineno})"
        in caplog.text
    )


@pytest.mark.parametrize("code", [Code.APPROVAL_PENDING, Code.BUDGET_EXHAUSTED])
def test_a_rule_says_in_words_what_only_handrail_says_by_code(code):
    def check(order, amount):
        raise ToolError(code, "Not today.")

    refusal = admit(
        ParsedCall(
            ToolCall("c1", "refund"),
            writing(check=check),
            {"order": "881", "amount": 1},
        ),
        Policy(),
    )
    assert (refusal.code, refusal.message) == (Code.TOOL_ERROR, "Not today.")


@pytest.mark.parametrize("told", [
    lambda: None,                              # a `return` was forgotten
    lambda: True,
    lambda: Decision.ALLOW,
    # it only looks like one
    lambda: SimpleNamespace(decision=Decision.ALLOW, risk="low"),
    lambda: Verdict("perhaps", "low"),
    lambda: Verdict("deny", "low"),            # the word, and not the decision
    lambda: Verdict(Decision.ASK, "low", required_approvals=0),
    lambda: 1 / 0,
])  # fmt: skip
@pytest.mark.parametrize("tool", [reading(), writing()], ids=["read", "write"])
def test_a_policy_of_one_s_own_that_does_not_clearly_allow_has_not_allowed(tool, told):
    class Mine(Policy, frozen=True):
        def judge(self, tool, arguments):
            return told()

    arguments = {"order": "881", "amount": 1} if tool.writes else {"city": "Paris"}
    call = ToolCall("c1", tool.name, json.dumps(arguments))
    assert isinstance(admit(ParsedCall(call, tool, arguments), Mine()), Failure)


def test_a_policy_of_one_s_own_sees_what_the_tool_gets():
    seen = []

    class Mine(Policy, frozen=True):
        def judge(self, tool, arguments):
            seen.append(dict(arguments))
            return super().judge(tool, arguments)

    def show(file: Path, lines: int = 10) -> str:
        """Show a file."""
        return ""

    tool, arguments = (
        FunctionTool(show, effect="read", timeout_s=5),
        {"file": "/etc//passwd"},
    )
    call = ToolCall("c1", "show", json.dumps(arguments))
    admit(ParsedCall(call, tool, arguments), Mine())
    assert seen == [{"file": "/etc/passwd", "lines": 10}]


def test_a_validator_that_raises_what_pydantic_does_not_know_refuses_its_own_call_and_tells_the_engineer():
    class Order(BaseModel):
        order: str

        @field_validator("order")
        @classmethod
        def looked_up(cls, value):
            raise KeyError("canary")

    def ship(order: Order) -> str:
        """Ship an order."""

    told = []
    refusal = admit(
        ParsedCall(ToolCall("c1", "ship"), FunctionTool(ship), {"order": "881"}),
        Policy(),
        tell=told.append,
    )
    assert (refusal.code, "canary" in str(refusal.as_json())) == (
        Code.INTERNAL_ERROR,
        False,
    )
    assert isinstance(told[0], AttemptFailed)
    assert "KeyError" in told[0].reason


@pytest.mark.parametrize("names_nothing", [
    lambda order, amount: None,                 # what a function returns that forgot to
    lambda order, amount: "",
    lambda order, amount: {}["missing"],
])  # fmt: skip
def test_a_write_whose_key_function_names_nothing_does_not_run(names_nothing):
    refusal = admit(
        ParsedCall(
            ToolCall("c1", "refund"),
            writing(key=names_nothing),
            {"order": "881", "amount": 1},
        ),
        Policy(),
    )
    assert refusal.code == Code.INTERNAL_ERROR


def test_a_write_whose_key_names_an_absent_argument_asks_for_it():
    def pay(order: str | None, invoice: str | None = None) -> str:
        """Pay."""

    paying = FunctionTool(pay, effect="write", key="pay:{order.id}")
    refusal = admit(
        ParsedCall(ToolCall("c1", "pay"), paying, {"order": "881"}), Policy()
    )
    assert (refusal.code, "`order`" in refusal.message) == (
        Code.INVALID_ARGUMENTS,
        True,
    )


def test_a_declaration_that_cannot_be_used_is_raised_to_the_engineer():
    misspelt = writing(resource="order:{oder}")
    with pytest.raises(ToolDefinitionError, match=r"`oder`.*Did you mean `order`"):
        admit(
            ParsedCall(
                ToolCall("c1", "refund"), misspelt, {"order": "881", "amount": 1}
            ),
            Policy(),
        )


# ---------------------------------------------------------------------- edited by a person


def test_edited_arguments_are_what_the_tool_gets_and_what_is_claimed():
    call = admitted(
        writing(approve=True, key="refund:{order}", resource="order:{order}"),
        order="881",
        amount=20,
    )
    world = World(AskHuman=Approval(True, arguments={"order": "882", "amount": 5}))
    result = world.carry(call)
    (invoke,) = world.seen(Invoke)
    # the driver starts the tool with these
    assert invoke.call.bound == {"order": "882", "amount": 5}
    # what was asked about stays what it was
    assert call.bound == {"order": "881", "amount": 20}
    assert [
        resource.key
        for reserve in world.seen(Reserve)
        for resource in reserve.call.resources
    ] == ["order:882"]
    assert world.claim.key == "refund:882"
    assert world.claim.fingerprint == keys.fingerprint(
        "refund", "", {"order": "882", "amount": 5}
    )
    assert result.ok


def test_the_model_is_told_what_a_person_changed():
    world = World(AskHuman=Approval(True, arguments={"order": "881", "amount": 5}))
    assert '{"amount":5}' in refunded(world, approve=True).text


@pytest.mark.parametrize(("edited", "code"), [
    # a person can mistype too
    ({"order": "881"}, Code.INVALID_ARGUMENTS),
    ({"order": "881", "amount": 5, "to": "me"}, Code.INVALID_ARGUMENTS),
    ({"order": "881", "amount": -1}, Code.RULE_VIOLATED),
    ({"order": "881", "amount": 5000}, Code.NOT_PERMITTED),
])  # fmt: skip
def test_edited_arguments_pass_every_check_again(edited, code):
    policy = Policy(rules=[Rule("refund", then="deny", when="amount > 1000")])
    made = writing(
        approve=True, check=lambda order, amount: "above 0" if amount <= 0 else None
    )
    world = World(policy, AskHuman=Approval(True, arguments=edited))
    result = world.carry(admitted(made, policy, order="881", amount=20))
    assert (world.kinds, result.failure.code) == (["AskHuman", "Admit"], code)
    assert "A person changed the arguments" in result.failure.message


def test_an_edited_write_without_a_declared_key_keeps_its_place_in_the_run():
    world = World(AskHuman=Approval(True, arguments={"order": "882", "amount": 5}))
    refunded(world, approve=True)
    assert world.claim.key == "r1/3/1"


# ---------------------------------------------------------------------- done again by a person's word


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), CallCancelled()])
def test_a_write_that_was_to_be_done_again_and_could_not_be_claimed_is_as_doubtful_as_before(
    error,
):
    world = World(Claim=[Claimed(ClaimState.IN_DOUBT, fence=1), error])
    result = refunded(world, **BY_KEY, write=Write(on_doubt="ask"))
    assert world.kinds == ["Claim", "AskHuman", "Claim"]
    assert (result.failure.code, result.failure.retryable) == (Code.IN_DOUBT, False)


@pytest.mark.parametrize(("claimed", "invoked"), [
    (Claimed(ClaimState.FRESH, fence=1), Unfinished(End.NOT_STARTED)),
    (Claimed(ClaimState.FRESH, fence=1), Raised(NoEffect("BUSY", "Try later.", retryable=True))),
    (Claimed(ClaimState.FRESH, fence=1), Raised(NoEffect("CARD_DECLINED", "The card was declined."))),
    (Claimed(ClaimState.FRESH, fence=1), Raised(ToolError("CARD_DECLINED", "The card was declined."))),
    (Claimed(ClaimState.BUSY), None),
    (Claimed(ClaimState.LOCKED), None),
    (Claimed(ClaimState.CONFLICT), None),
])  # fmt: skip
def test_a_write_that_was_to_be_done_again_and_had_no_effect_is_as_doubtful_as_before(
    claimed, invoked
):
    world = World(
        Claim=[Claimed(ClaimState.IN_DOUBT, fence=1), claimed],
        AskHuman=[Approval(True), Approval(False)],
        Invoke=invoked,
    )
    result = refunded(
        world, **BY_KEY, write=Write(on_doubt="ask"), limits=Limits(max_attempts=1)
    )
    assert (result.failure.code, result.failure.retryable) == (Code.IN_DOUBT, False)


def test_while_nobody_has_said_whether_it_is_done_again_the_model_is_told_that_it_may_have_happened():
    world = World(Claim=[Claimed(ClaimState.IN_DOUBT, fence=1)], AskHuman=None)
    failure = refunded(world, **BY_KEY, write=Write(on_doubt="ask")).failure
    assert failure.code == Code.APPROVAL_PENDING
    assert failure.message.startswith(
        "`refund` was started and may have taken effect. To be done again it needs"
    )


def test_a_write_in_doubt_stays_so_when_the_arguments_that_a_person_wrote_are_refused():
    edited = Approval(True, arguments={"order": "881", "amount": "much"})
    world = World(Claim=[Claimed(ClaimState.IN_DOUBT, fence=1)], AskHuman=edited)
    result = refunded(world, **BY_KEY, write=Write(on_doubt="ask"))
    assert (world.kinds, result.failure.code) == (["Claim", "AskHuman"], Code.IN_DOUBT)


# ---------------------------------------------------------------------- the claim


def test_a_claim_names_the_act_for_longer_than_the_tool_may_take():
    world = World()
    world.conduct = replace(world.conduct, scope="acme")
    refunded(world, **BY_KEY, timeout_s=10)
    claim = world.claim
    assert (claim.scope, claim.tool, claim.key, claim.run_id, claim.replay) == (
        "acme",
        "refund",
        "refund:881",
        "r1",
        "key",
    )
    assert claim.lease_s == 10 + LEASE_BEYOND_TIMEOUT_S


@pytest.mark.parametrize(("declared", "lease_s"), [
    ({}, LONGEST_LEASE_S), (BY_KEY, LONGEST_LEASE_S),
    # `verify` would miss what a dead process has sent, if asked before
    (BY_VERIFY, 600 + LEASE_BEYOND_TIMEOUT_S),
])  # fmt: skip
def test_a_renewed_lease_is_short_unless_an_old_request_may_arrive_until_the_tool_s_time_is_over(
    declared, lease_s
):
    world = World()
    world.conduct = replace(world.conduct, renews=True)
    refunded(world, **declared, timeout_s=600)
    assert world.claim.lease_s == lease_s


@pytest.mark.parametrize(
    ("declared", "guard"), [({}, True), ({"write": Write(repeatable=True)}, False)]
)
def test_a_repeatable_tool_is_not_guarded_against_repeats(declared, guard):
    world = World()
    refunded(world, **declared)
    assert world.claim.guard is guard


@pytest.mark.parametrize(("state", "kinds", "code"), [
    (ClaimState.FRESH, "Claim Invoke Settle", None),
    # the far side tells duplicates apart
    (ClaimState.AGAIN, "Claim Invoke Settle", None),
    (ClaimState.DONE, "Claim", None),                              # its result is there
    (ClaimState.IN_DOUBT, "Claim", Code.IN_DOUBT),
    (ClaimState.CONFLICT, "Claim", Code.IDEMPOTENCY_KEY_REUSED),
    # the tool declares no `verify` any more
    (ClaimState.CHECK, "Claim Settle", Code.IN_DOUBT),
])  # fmt: skip
def test_only_a_write_that_is_the_callers_own_is_started(state, kinds, code):
    world = World(Claim=Claimed(state, 7, "earlier"))
    result = refunded(world)
    assert (" ".join(world.kinds), result.failure and result.failure.code) == (
        kinds,
        code,
    )


@pytest.mark.parametrize(("found", "kinds", "settled", "code"), [
    (Found("made at 9:00"), "Claim Verify Settle", "done", None),
    # certainly not there: done now
    (NotFound(), "Claim Verify Invoke Settle", "done", None),
    (Unknown(), "Claim Verify Settle", "in_doubt", Code.IN_DOUBT),
])  # fmt: skip
def test_a_write_that_somebody_else_began_is_verified_before_it_is_started(
    found, kinds, settled, code
):
    world = World(Claim=Claimed(ClaimState.CHECK, 8), Verify=found)
    result = refunded(world, **BY_VERIFY)
    assert (" ".join(world.kinds), world.settled) == (kinds, settled)
    assert (result.failure and result.failure.code) == code


@pytest.mark.parametrize(("left_s", "found", "kinds", "settled"), [
    # The lease is the tool's 30 s and 30 s more: what is left beyond those is left of the tool's time.
    (42.0, [Found("made")], "Claim Verify Settle", "done"),
    # it was still on its way
    (42.0, [NotFound(), Found("made")], "Claim Verify Wait Verify Settle", "done"),
    (42.0, [NotFound()], "Claim Verify Wait Verify Invoke Settle", "done"),
    (42.0, [NotFound(), Unknown()], "Claim Verify Wait Verify Settle", "in_doubt"),
    (29.0, [NotFound()], "Claim Verify Invoke Settle", "done"),
])  # fmt: skip
def test_what_a_dead_process_has_sent_may_still_arrive_so_it_is_looked_for_twice(
    left_s, found, kinds, settled
):
    world = World(Claim=Claimed(ClaimState.CHECK, 8, left_s=left_s), Verify=found)
    refunded(world, **BY_VERIFY)
    assert (" ".join(world.kinds), world.settled) == (kinds, settled)
    assert [wait.seconds for wait in world.seen(Wait)] == [12.0] * kinds.count("Wait")


@pytest.mark.parametrize("ended", ["its time", "cancelled"])
def test_a_run_that_ends_while_a_dead_process_s_request_may_arrive_leaves_the_write_in_doubt(
    ended,
):
    world = World(Claim=Claimed(ClaimState.CHECK, 8, left_s=42.0), Verify=NotFound())
    if ended == "its time":
        world.conduct.deadline.at = 11.0
    else:
        world.answers["Wait"] = CallCancelled()
    result = refunded(world, **BY_VERIFY)
    assert (result.failure.code, world.settled, world.seen(Invoke)) == (
        Code.IN_DOUBT,
        "in_doubt",
        [],
    )


def test_a_write_that_was_done_before_gives_the_earlier_result_and_says_so():
    result = refunded(World(Claim=Claimed(ClaimState.DONE, 7, {"id": 3})))
    assert (result.value, result.replayed, result.attempts) == ({"id": 3}, True, 0)
    assert "already done" in json.loads(result.text)["note"]


def test_whoever_comes_second_gets_the_result_of_the_first():
    world = World(
        Claim=[
            Claimed(ClaimState.BUSY),
            Claimed(ClaimState.BUSY),
            Claimed(ClaimState.DONE, 1, "made"),
        ]
    )
    assert refunded(world).value == "made"
    assert [wait.seconds for wait in world.seen(Wait)] == [0.05, 0.1]


def test_whoever_waits_in_vain_for_another_s_write_is_told_that_it_is_in_progress():
    world = World(Claim=Claimed(ClaimState.BUSY))
    result = refunded(world, timeout_s=5)
    assert (result.failure.code, result.failure.retryable) == (Code.IN_PROGRESS, True)
    assert world.clock() < 5
    assert max(wait.seconds for wait in world.seen(Wait)) == 1.0


@pytest.mark.parametrize(("then", "ended"), [
    # by the process that is under way, which has recorded it
    (Claimed(ClaimState.DONE, 1, "made"), "made"),
    # its lease is over: what it did is looked for
    (Claimed(ClaimState.CHECK, 2), "found"),
])  # fmt: skip
def test_a_run_that_is_gone_on_with_looks_again_until_the_lease_of_its_write_is_over(
    then, ended
):
    world = World(Claim=[Claimed(ClaimState.BUSY)] * 35 + [then], Verify=Found("found"))
    world.conduct = replace(world.conduct, epoch=2)
    assert refunded(world, timeout_s=1, **BY_VERIFY).value == ended
    assert 30 < world.clock() < 90


# ---------------------------------------------------------------------- how a write ends

STOPPED, RUNNING_ON, NOT_STARTED = (
    Unfinished(end) for end in (End.STOPPED, End.RUNNING_ON, End.NOT_STARTED)
)
REFUSED = Raised(ConnectionRefusedError())
RESET = Raised(ConnectionResetError())
BUG = Raised(KeyError("canary"))
DECLINED = Raised(ToolError("CARD_DECLINED", "The card was declined."))
NOTHING = Raised(NoEffect("CARD_DECLINED", "The card was declined."))


class Answered(Exception):
    """An HTTP answer as HTTP libraries raise it."""

    def __init__(self, status, **headers):
        self.status_code, self.headers = (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )


ASKED_TO_WAIT, GONE = Raised(Answered(429, Retry_After="2")), Raised(Answered(404))

WRITE_ENDS = [
    # class, how each start ended, what `verify` finds, recorded as, told, starts
    ({}, [Returned("ok")], None, "done", None, 1),
    ({}, [Returned("ok", late=True)], None, "done", None, 1),
    ({}, [NOTHING], None, "failed", "CARD_DECLINED", 1),
    # worded, but not said to be without effect
    ({}, [DECLINED], None, "in_doubt", "CARD_DECLINED", 1),
    # of which request? an earlier one may have had its effect
    ({}, [REFUSED], None, "in_doubt", Code.IN_DOUBT, 1),
    ({}, [GONE], None, "in_doubt", Code.IN_DOUBT, 1),
    ({}, [ASKED_TO_WAIT], None, "in_doubt", Code.IN_DOUBT, 1),
    # nothing was sent: again
    (ONE_REQUEST, [REFUSED, Returned("ok")], None, "done", None, 2),
    (ONE_REQUEST, [REFUSED], None, "failed", Code.UNAVAILABLE, 3),
    (ONE_REQUEST, [GONE], None, "failed", Code.INTERNAL_ERROR, 1),
    (ONE_REQUEST, [ASKED_TO_WAIT, Returned("ok")], None, "done", None, 2),
    (ONE_REQUEST, [ASKED_TO_WAIT], None, "failed", Code.RATE_LIMITED, 3),
    # it was sent, and perhaps heard
    (ONE_REQUEST, [RESET], None, "in_doubt", Code.IN_DOUBT, 1),
    # no thread was free, and there is time left
    ({}, [NOT_STARTED], None, "failed", Code.TIMEOUT, 3),
    ({}, [RESET], None, "in_doubt", Code.IN_DOUBT, 1),
    ({}, [STOPPED], None, "in_doubt", Code.IN_DOUBT, 1),
    ({}, [RUNNING_ON], None, "in_doubt", Code.IN_DOUBT, 1),
    ({}, [BUG], None, "in_doubt", Code.IN_DOUBT, 1),
    # the far side tells duplicates apart
    (BY_KEY, [RESET, Returned("ok")], None, "done", None, 2),
    (BY_KEY, [RESET], None, "in_doubt", Code.IN_DOUBT, 3),
    # the first start may still have had its effect, whatever the next one says of itself
    (BY_KEY, [RESET, NOTHING], None, "in_doubt", Code.IN_DOUBT, 2),
    (BY_KEY, [RESET, DECLINED], None, "in_doubt", Code.IN_DOUBT, 2),
    (BY_KEY, [RESET, REFUSED], None, "in_doubt", Code.IN_DOUBT, 3),
    (BY_KEY, [RESET, NOT_STARTED], None, "in_doubt", Code.IN_DOUBT, 3),
    ({**BY_KEY, **ONE_REQUEST}, [RESET, GONE], None, "in_doubt", Code.IN_DOUBT, 2),
    (BY_KEY, [RESET, NOTHING, Returned("ok")], None, "in_doubt", Code.IN_DOUBT, 2),
    # no reason to think that it passes
    (BY_KEY, [BUG], None, "in_doubt", Code.IN_DOUBT, 1),
    (BY_VERIFY, [RESET], Found("made"), "done", None, 1),
    # certainly not there: again
    (BY_VERIFY, [RESET, Returned("ok")], NotFound(), "done", None, 2),
    (BY_VERIFY, [RESET], NotFound(), "failed", Code.UNAVAILABLE, 3),
    (BY_VERIFY, [RESET], Unknown(), "in_doubt", Code.IN_DOUBT, 1),
    # the author's word stands
    (BY_VERIFY, [DECLINED], NotFound(), "failed", "CARD_DECLINED", 1),
    (BY_VERIFY, [BUG], NotFound(), "failed", Code.INTERNAL_ERROR, 1),
    # not there yet: it still runs
    (BY_VERIFY, [RUNNING_ON], NotFound(), "in_doubt", Code.IN_DOUBT, 1),
    (BY_VERIFY, [RUNNING_ON], Found("made"), "done", None, 1),
    (BY_KEY, [REFUSED, Returned("ok")], None, "done", None, 2),
    # what was refused came after what was made
    (BY_VERIFY, [REFUSED], Found("made"), "done", None, 1),
    (BY_VERIFY, [REFUSED, Returned("ok")], NotFound(), "done", None, 2),
    # nothing to verify
    ({**BY_VERIFY, **ONE_REQUEST}, [REFUSED, Returned("ok")], None, "done", None, 2),
    # never again by itself
    (
        {"effect": "destructive", **ONE_REQUEST},
        [REFUSED],
        None,
        "failed",
        Code.UNAVAILABLE,
        1,
    ),
    ({"effect": "destructive", **BY_KEY}, [RESET], None, "in_doubt", Code.IN_DOUBT, 1),
    # undeclared: the same
    ({"effect": None, **ONE_REQUEST}, [REFUSED], None, "failed", Code.UNAVAILABLE, 1),
]


@pytest.mark.parametrize(
    ("declared", "ends", "found", "settled", "code", "starts"), WRITE_ENDS
)
def test_a_write_is_recorded_as_what_is_known_of_it(
    declared, ends, found, settled, code, starts
):
    world = World(Invoke=list(ends), Verify=found)
    result = refunded(world, **declared)
    assert (world.settled, result.failure and result.failure.code) == (settled, code)
    assert len(world.seen(Invoke)) == result.attempts == starts


LOST = Raised(FarFailure(Failure(Code.IN_DOUBT, "The far side went away.")))


@pytest.mark.parametrize("end", [RESET, BUG, DECLINED, LOST])
@pytest.mark.parametrize(
    ("found", "settled", "starts"),
    [
        ([NotFound(), Found("made")], "done", 1),
        ([NotFound(), NotFound()], "done", 2),
        ([NotFound(), Unknown()], "in_doubt", 1),
    ],
)
def test_a_request_whose_answer_was_lost_may_still_arrive_so_it_is_looked_for_twice(
    end, found, settled, starts
):
    world = World(Invoke=[end, Returned("ok")], Verify=[*found], takes_s=2)
    result = refunded(
        world, **BY_VERIFY, timeout_s=10, limits=Limits(attempt_timeout_s=2)
    )
    if end in (BUG, DECLINED, LOST) and starts == 2:
        settled, starts = "failed", 1  # no reason to think that it passes
    assert (world.settled, len(world.seen(Invoke))) == (settled, starts)
    assert world.seen(Wait)[0].seconds == 8
    assert result.attempts == starts
    if settled == "failed":
        assert result.failure.code != Code.IN_DOUBT


@pytest.mark.parametrize("end", [STOPPED, RUNNING_ON])
@pytest.mark.parametrize(
    ("found", "settled"),
    [
        ([Found("made")], "done"),
        ([NotFound(), Found("made")], "done"),
        ([NotFound(), NotFound()], "in_doubt"),
        ([NotFound(), Unknown()], "in_doubt"),
        ([Unknown()], "in_doubt"),
    ],
)
def test_a_request_that_we_cut_off_is_looked_for_twice_and_not_made_again(
    end, found, settled
):
    world = World(Invoke=[end, Returned("ok")], Verify=[*found], takes_s=2)
    result = refunded(
        world, **BY_VERIFY, timeout_s=10, limits=Limits(attempt_timeout_s=2)
    )
    assert (world.settled, len(world.seen(Invoke))) == (settled, 1)
    assert result.ok or result.failure.code == Code.IN_DOUBT
    assert [wait.seconds for wait in world.seen(Wait)] == [8] * (len(found) - 1)


@pytest.mark.parametrize("end", [STOPPED, RUNNING_ON])
@pytest.mark.parametrize(
    ("found", "settled"), [(Found("made"), "done"), (NotFound(), "in_doubt")]
)
def test_a_request_that_took_all_of_the_tool_s_time_is_looked_for_once(
    end, found, settled
):
    world = World(Invoke=end, Verify=found, takes_s=10)
    refunded(world, **BY_VERIFY, timeout_s=10)
    assert (world.settled, len(world.seen(Verify))) == (settled, 1)
    assert world.seen(Wait) == []


def test_waiting_for_a_request_in_flight_takes_nothing_of_the_attempts_time():
    world = World(Invoke=[RESET] * 2 + [Returned("ok")], Verify=NotFound(), takes_s=2)
    refunded(world, **BY_VERIFY, timeout_s=10)
    first, *others = world.seen(Invoke)
    assert first.timeout_s == 10
    waits = [wait.seconds for wait in world.seen(Wait)]
    assert waits[::2] == [8, 8]
    backoffs = [sum(waits[1::2][:number]) for number in (1, 2)]
    assert [each.timeout_s for each in others] == pytest.approx(
        [8 - backoffs[0], 6 - backoffs[1]]
    )


@pytest.mark.parametrize("end", [STOPPED, RESET])
def test_a_run_that_ends_while_a_request_may_arrive_leaves_the_write_in_doubt(end):
    world = World(Invoke=end, Verify=NotFound(), takes_s=2)
    world.conduct.deadline.at = 9
    result = refunded(world, **BY_VERIFY, timeout_s=10)
    assert (world.settled, result.failure.code) == ("in_doubt", Code.IN_DOUBT)
    assert world.seen(Wait) == []


def test_a_write_of_one_request_waits_as_long_as_the_far_side_asks():
    world = World(Invoke=[ASKED_TO_WAIT, Returned("ok")])
    refunded(world, **ONE_REQUEST)
    assert [wait.seconds for wait in world.seen(Wait)] == [2.0]


@pytest.mark.parametrize("ends", [[RESET], [STOPPED], [RUNNING_ON], [BUG]])
def test_a_write_in_doubt_is_never_called_retryable(ends):
    failure = refunded(World(Invoke=ends)).failure
    assert (failure.code, failure.retryable) == (Code.IN_DOUBT, False)


def test_a_settlement_carries_the_fence_of_the_claim_and_the_plain_result():
    world = World(Claim=Claimed(ClaimState.FRESH, 42), Invoke=Returned({"ids": (1, 2)}))
    refunded(world)
    (settle,) = world.seen(Settle)
    assert (settle.fence, settle.value) == (42, {"ids": [1, 2]})


def test_a_write_that_finished_late_says_so():
    result = refunded(World(Invoke=Returned("ok", late=True)))
    assert "after its deadline" in result.text


def test_a_verified_write_says_that_its_answer_was_lost():
    result = refunded(World(Invoke=RESET, Verify=Found({"id": 3})), **BY_VERIFY)
    assert result.value == {"id": 3}
    assert "verified" in result.note


# ---------------------------------------------------------------------- how a read ends


@pytest.mark.parametrize(("ends", "code", "starts"), [
    ([Returned("ok")], None, 1),
    ([RESET, RESET, Returned("ok")], None, 3),
    ([RESET], Code.UNAVAILABLE, 3),                      # three attempts are the most
    ([REFUSED], Code.UNAVAILABLE, 3),
    # an unknown error is no reason to think that it passes
    ([BUG], Code.INTERNAL_ERROR, 1),
    ([DECLINED], "CARD_DECLINED", 1),
    ([Raised(ToolError("BUSY", "Later.", retryable=True)), Returned("ok")], None, 2),
    ([STOPPED, Returned("ok")], None, 2),
    ([Unfinished(End.STOPPED, cancelled=True)], Code.CANCELLED, 1),
])  # fmt: skip
def test_a_read_is_tried_again_while_its_failure_may_pass(ends, code, starts):
    world = World(Invoke=list(ends))
    result = world.carry(admitted(reading(), city="Bern"))
    assert (result.failure and result.failure.code, result.attempts) == (code, starts)
    assert set(world.kinds) <= {"Invoke", "Wait"}


def test_the_author_says_how_often_a_read_is_tried():
    assert (
        World(Invoke=RESET)
        .carry(admitted(reading(limits=Limits(max_attempts=1)), city="Bern"))
        .attempts
        == 1
    )


def test_the_wait_doubles_between_the_attempts():
    world = World(Invoke=RESET)
    world.carry(admitted(reading(), city="Bern"))
    # full jitter at its most, from 0.2 s
    assert [wait.seconds for wait in world.seen(Wait)] == [0.2, 0.4]


def test_the_far_side_s_wish_to_wait_is_heeded():
    busy = Raised(ToolError("BUSY", "Later.", retryable=True, retry_after_s=3))
    world = World(Invoke=[busy, Returned("ok")])
    world.carry(admitted(reading(), city="Bern"))
    assert [wait.seconds for wait in world.seen(Wait)] == [3]


def test_nothing_is_tried_again_when_the_wait_would_outlast_the_deadline():
    busy = Raised(ToolError("BUSY", "Later.", retryable=True, retry_after_s=31))
    world = World(Invoke=busy)
    result = world.carry(admitted(reading(timeout_s=30), city="Bern"))
    assert (world.kinds, result.failure.code) == (["Invoke"], "BUSY")


@pytest.mark.parametrize(("declared", "run_left_s", "allowed_s"), [
    # two attempts of 2 s and two waits are gone
    ({"timeout_s": 5}, 300, [5, 5 - 2 - 0.2, 5 - 4 - 0.6]),
    # the run ends first
    ({"timeout_s": 30}, 4, [4, 4 - 2 - 0.2]),
    ({"timeout_s": 30, "limits": Limits(attempt_timeout_s=3)}, 300, [3, 3, 3]),
])  # fmt: skip
def test_an_attempt_gets_what_is_left_of_the_call_and_of_the_run(
    declared, run_left_s, allowed_s
):
    world = World(Invoke=RESET, takes_s=2)
    world.conduct.deadline.at = run_left_s
    world.carry(admitted(reading(**declared), city="Bern"))
    assert [invoke.timeout_s for invoke in world.seen(Invoke)] == pytest.approx(
        allowed_s
    )


def test_a_call_that_comes_after_the_end_of_the_run_gets_no_time():
    world = World()
    world.clock.advance(400)
    world.carry(admitted(reading(), city="Bern"))
    assert [invoke.timeout_s for invoke in world.seen(Invoke)] == [0.0]


def test_every_failed_attempt_is_told_with_the_wait_that_follows():
    world = World(Invoke=[RESET, BUG])
    world.carry(admitted(reading(), city="Bern"))
    assert [(event.attempt, event.retry_in_s) for event in world.events] == [
        (1, 0.2),
        (2, None),
    ]
    assert "KeyError" in world.events[1].reason


# ---------------------------------------------------------------------- silence and cancellation

EVERYTHING = {"approve": True, "resource": "order:{order}", "verify": verifying}


@pytest.mark.parametrize(("at", "code", "settled"), [
    ("AskHuman", Code.UNAVAILABLE, None),
    ("Claim", Code.UNAVAILABLE, None),           # nothing was claimed, so nothing runs
    ("Verify", Code.IN_DOUBT, "in_doubt"),
    # what happened is still told; the claim stays open
    ("Settle", None, "done"),
    ("Keep", None, "done"),                      # the rest is lost, the result is not
])  # fmt: skip
def test_a_store_that_does_not_answer_changes_no_truth(at, code, settled):
    long = Returned("x" * 40_000) if at != "Verify" else RESET
    world = World(**{"Invoke": long, at: StoreUnavailable("disk full: canary")})
    result = refunded(world, **EVERYTHING)
    assert (result.failure and result.failure.code, world.settled) == (code, settled)
    assert "canary" not in result.text


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), CallCancelled()])
@pytest.mark.parametrize("at", ["AskHuman", "Reserve", "Claim"])
def test_a_resumed_write_of_which_the_ledger_says_nothing_is_in_doubt(at, error):
    world = World(**{at: error})
    world.conduct = replace(world.conduct, epoch=2)
    result = refunded(world, **EVERYTHING)
    assert (result.failure.code, result.failure.retryable, result.attempts) == (
        Code.IN_DOUBT,
        False,
        0,
    )


def test_a_resumed_write_that_does_not_get_its_turn_is_in_doubt():
    world = World(Reserve=False)
    world.conduct = replace(world.conduct, epoch=2)
    assert refunded(world, **EVERYTHING).failure.code == Code.IN_DOUBT


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), CallCancelled()])
def test_a_deferred_write_whose_question_the_store_does_not_answer_was_carried_out(
    error,
):
    world = World(AskHuman=[None, error])
    result = refunded(world, deferred=True)
    assert world.settled is None
    assert (result.failure.code, result.failure.retryable) == (
        Code.RESULT_PENDING,
        False,
    )


def test_a_write_does_not_run_without_a_claim():
    world = World(Claim=StoreUnavailable())
    result = refunded(world)
    assert (world.kinds, result.failure.retryable, result.attempts) == (
        ["Claim"],
        True,
        0,
    )


@pytest.mark.parametrize(("at", "code", "settled"), [
    ("AskHuman", Code.CANCELLED, None),
    ("Reserve", Code.CANCELLED, None),
    ("Claim", Code.CANCELLED, None),
    # what was begun is not told as not begun
    ("Verify", Code.IN_DOUBT, "in_doubt"),
    ("Wait", Code.CANCELLED, "failed"),          # between two starts that had no effect
    ("Settle", None, "done"),
    ("Keep", None, "done"),
])  # fmt: skip
def test_a_cancelled_write_is_told_as_what_is_known_of_it(at, code, settled):
    again = Raised(NoEffect("BUSY", "Try later.", retryable=True))
    end = {"Verify": RESET, "Wait": again}.get(at, Returned("x" * 40_000))
    world = World(**{"Invoke": end, at: CallCancelled()})
    result = refunded(world, **EVERYTHING)
    assert (result.failure and result.failure.code, world.settled) == (code, settled)


def test_a_write_cancelled_between_two_doubtful_starts_stays_in_doubt():
    world = World(Invoke=RESET, Wait=CallCancelled())
    result = refunded(world, **BY_KEY)
    assert (result.failure.code, world.settled, result.attempts) == (
        Code.IN_DOUBT,
        "in_doubt",
        1,
    )


def test_a_read_cancelled_between_two_attempts_counts_the_first():
    result = World(Invoke=RESET, Wait=CallCancelled()).carry(
        admitted(reading(), city="Bern")
    )
    assert (result.failure.code, result.attempts) == (Code.CANCELLED, 1)


def test_a_call_cancelled_while_it_waits_for_another_s_write_was_not_started():
    result = refunded(World(Claim=Claimed(ClaimState.BUSY), Wait=CallCancelled()))
    assert (result.failure.code, result.attempts) == (Code.CANCELLED, 0)


# ---------------------------------------------------------------------- what the model reads


@pytest.mark.parametrize("error", [
    ValueError("canary"),
    ConnectionResetError("canary"),
    TimeoutError("canary"),
    StoreUnavailable("canary"),
    ToolDefinitionError("canary"),
    # not even its class
    type("canary", (Exception,), {})(),
    ExceptionGroup("canary", [ValueError("canary")]),
])  # fmt: skip
@pytest.mark.parametrize("declared", [{}, BY_KEY, BY_VERIFY])
def test_nothing_of_an_exception_reaches_the_model(error, declared):
    result = refunded(World(Invoke=Raised(error), Verify=NotFound()), **declared)
    assert not result.ok
    assert "canary" not in result.text + repr(result)


def test_a_failure_is_told_in_the_one_form():
    result = refunded(World(Invoke=NOTHING))
    assert json.loads(result.text) == {
        "success": False,
        "error_code": "CARD_DECLINED",
        "error_message": "The card was declined.",
        "suggestion": "",
        "retryable": False,
    }


def test_an_internal_error_has_a_reference_and_no_word_of_the_exception():
    message = World(Invoke=BUG).carry(admitted(reading(), city="Bern")).failure.message
    assert "reference " in message


def test_a_long_result_is_cut_and_the_rest_is_kept_under_a_handle():
    world = World(Invoke=Returned("x" * 40_000))
    result = world.carry(admitted(reading(), city="Bern"))
    assert [keep.text for keep in world.seen(Keep)] == ["x" * 40_000]
    assert result.handle == "r_1"
    assert "read_result(handle='r_1')" in result.text


LONG = [{"row": n, "text": "plain text"} for n in range(20_000)]


@pytest.mark.parametrize("tool", [reading(), writing(**BY_KEY)])
def test_a_long_result_is_written_where_it_holds_nobody_up(tool):
    arguments = {"order": "881", "amount": 20} if tool.writes else {"city": "Bern"}
    call = admitted(tool, **arguments)
    world = World(Invoke=Returned(LONG, 600_000, has_iterators=False))
    result = world.carry(call)
    at_once = World(Invoke=Returned(LONG)).carry(call)
    assert (result.text, result.handle) == (at_once.text, at_once.handle)
    assert "Compute" in world.kinds
    assert [settle.value for settle in world.seen(Settle)] == [LONG] * tool.writes


def test_a_rest_that_could_not_be_kept_is_said_to_be_lost():
    result = World(Invoke=Returned("x" * 40_000), Keep=StoreUnavailable()).carry(
        admitted(reading(), city="Bern")
    )
    assert (result.handle, "could not be stored" in result.text) == ("", True)


def test_the_tool_says_how_much_of_its_result_is_read():
    result = World(Invoke=Returned("x" * 2000)).carry(
        admitted(reading(limits=Limits(result_bytes=1000)), city="Bern")
    )
    assert len(result.text) < 1300  # a thousand and the note


def test_repairs_are_told_to_the_model():
    call = parse_call(
        ToolCall("c1", "look_up", "{'city': 'Bern'}"), Toolset([reading()]), "calls"
    )
    result = World(Invoke=Returned("cold")).carry(admit(call, Policy()))
    assert result.repairs == ("single_quotes",)
    assert "single_quotes" in result.text


# ---------------------------------------------------------------------- laws

ENDS = st.sampled_from([
    Returned("ok"), Returned("x" * 40_000, late=True), STOPPED, RUNNING_ON, NOT_STARTED, REFUSED, RESET, BUG, DECLINED,
    NOTHING, Unfinished(End.STOPPED, cancelled=True), Unfinished(End.NOT_STARTED, cancelled=True),
])  # fmt: skip
THROWN = st.sampled_from([StoreUnavailable("canary"), CallCancelled("canary")])
ANSWERS = {
    "AskHuman": st.sampled_from([None, Approval(True), Approval(False)]) | THROWN,
    "Reserve": st.booleans() | THROWN,
    "Claim": st.builds(
        Claimed,
        # a deferred write, of which another process may have made one attempt
        st.sampled_from(
            [each for each in ClaimState if each is not ClaimState.STARTED]
        ),
        st.just(7),
        st.just("earlier"),
    )
    | THROWN,
    "Invoke": ENDS,
    "Verify": st.sampled_from([Found("made"), NotFound(), Unknown()]) | THROWN,
    "Wait": st.none() | THROWN,
    "Settle": st.none() | THROWN,
    "Keep": st.just("r_1") | THROWN,
}
DECLARED = st.sampled_from([
    {}, BY_KEY, BY_VERIFY, ONE_REQUEST, {"effect": "destructive"}, {"effect": None}, EVERYTHING,
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(data=st.data(), declared=DECLARED)
def test_whatever_is_answered_a_write_keeps_its_promises(data, declared):
    lists = {
        kind: data.draw(st.lists(answer, min_size=1, max_size=4))
        for kind, answer in ANSWERS.items()
    }
    world = World(**lists)
    result = refunded(world, **declared)

    assert result.call_id == "c1"
    assert "canary" not in result.text
    assert result.attempts == len(world.seen(Invoke))
    told = result.failure.code if result.failure else None
    if world.seen(Invoke):
        assert "Claim" in world.kinds[: world.kinds.index("Invoke")]
        assert world.settled is not None
        assert told != Code.TIMEOUT or world.settled == "failed"
    if told == Code.IN_DOUBT and world.seen(Invoke):
        assert world.settled == "in_doubt"
    if world.settled == "done":
        assert result.ok
    if world.settled in ("done", "failed"):
        assert {effect.fence for effect in world.seen(Settle)} == {7}


@settings(max_examples=200, deadline=None)
@given(
    ends=st.lists(ENDS, min_size=1, max_size=4),
    found=st.sampled_from([Found("made"), NotFound(), Unknown()]),
)
@pytest.mark.parametrize(
    "declared", [{}, BY_VERIFY, ONE_REQUEST, {"effect": "destructive"}]
)
def test_without_the_far_side_s_help_a_write_starts_again_only_when_it_certainly_had_no_effect(
    declared, ends, found
):
    world = World(Invoke=list(ends), Verify=found)
    refunded(world, **declared)
    without_effect = (
        NOTHING,
        NOT_STARTED,
        *([REFUSED] if declared == ONE_REQUEST else []),
    )
    for number, (first, _) in enumerate(pairwise(world.seen(Invoke))):
        end = ends[min(number, len(ends) - 1)]
        assert first.attempt == number + 1
        assert end in without_effect or (
            declared == BY_VERIFY and found == NotFound() and end != RUNNING_ON
        )
