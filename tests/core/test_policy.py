"""Whether a call may run: permission first, then rules, then risk."""

import pytest

from handrail.core.policy import Decision, Policy, Rule
from handrail.errors import ConfigError, SetupError, ToolDefinitionError
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Write


def pay(amount: float, to: str = "") -> str:
    """Pay."""
    return ""


def made(name: str = "pay", **declared) -> FunctionTool:
    return FunctionTool(pay, name=name, **declared)


READ, WRITE, UNDECLARED = made(effect="read"), made(effect="write"), made()
DESTRUCTIVE, ADMIN = (
    made(effect="destructive"),
    made(effect="write", permission="admin"),
)
ALLOW, ASK, DENY = Decision


# ---------------------------------------------------------------------- permission and risk


@pytest.mark.parametrize(("policy", "tool", "decision"), [
    (Policy(), READ, ALLOW),
    # medium risk asks nobody
    (Policy(), WRITE, ALLOW),
    (Policy(), UNDECLARED, ALLOW),
    (Policy(), DESTRUCTIVE, ASK),                               # high risk asks
    (Policy(), ADMIN, DENY),                                    # only when granted
    (Policy("read"), READ, ALLOW),
    (Policy("read"), WRITE, DENY),
    (Policy("read"), UNDECLARED, DENY),                         # it counts as a write
    (Policy("admin"), ADMIN, ALLOW),
    (Policy(ask_from="medium"), WRITE, ASK),
    (Policy(ask_from="medium"), READ, ALLOW),
    (Policy(ask_from="low"), READ, ASK),
    (Policy(ask_from=None), DESTRUCTIVE, ALLOW),
    # declared risk counts more than the effect
    (Policy(), made(effect="read", risk="high"), ASK),
    (Policy(), made(effect="destructive", risk="low"), ALLOW),
    (Policy(), made(effect="write", approve=True), ASK),
    (Policy(ask_from=None), made(effect="write", approve=True), ASK),
    (Policy(), made(effect="write", approve="amount > 100"), ALLOW),
    (Policy(), made(effect="write", approve="amount > 10"), ASK),
    (Policy(), made(effect="write", approve="to > 10"), ASK),   # cannot be told: ask
])  # fmt: skip
def test_permission_and_risk_decide_where_no_rule_does(policy, tool, decision):
    assert policy.judge(tool, {"amount": 50}).decision is decision


@pytest.mark.parametrize(("policy", "tool", "sees"), [
    (Policy(), READ, True),
    (Policy("read"), WRITE, False),
    (Policy(), ADMIN, False),
    # a rule may depend on the arguments: told when called
    (Policy(rules=[Rule(then="deny")]), WRITE, True),
])  # fmt: skip
def test_a_run_sees_what_its_permission_covers(policy, tool, sees):
    assert policy.sees(tool) is sees


# ---------------------------------------------------------------------- rules


@pytest.mark.parametrize(("rules", "decision"), [
    ([Rule("pay", "deny")], DENY),
    ([Rule("pay", "ask")], ASK),
    ([Rule("pa?", "deny")], DENY),
    ([Rule("p*", "deny")], DENY),
    # names are told apart by case
    ([Rule("PAY", "deny")], ALLOW),
    ([Rule("refund", "deny")], ALLOW),
    ([Rule("pay", "allow"), Rule("*", "deny")], ALLOW),         # the first that matches
    ([Rule("*", "deny"), Rule("pay", "allow")], DENY),
    ([Rule("pay", "deny", when="amount > 100")], ALLOW),
    ([Rule("pay", "deny", when="amount > 10")], DENY),
    # `to` is absent: cannot be told, so it matches
    ([Rule("pay", "ask", when="to == 'me'")], ASK),
    ([Rule("pay", "deny", when="to > 1")], DENY),
    # and an allowing rule does not
    ([Rule("pay", "allow", when="to == 'me'"), Rule("pay", "deny")], DENY),
    ([Rule("pay", "deny", when="amount / (amount - amount) > 1")], DENY),
])  # fmt: skip
def test_the_first_rule_that_matches_decides(rules, decision):
    assert Policy(rules=rules).judge(WRITE, {"amount": 50}).decision is decision


FILE = {"path": "/data/notes"}
SMALL = {"type": "number", "maximum": 9}


@pytest.mark.parametrize(("rule", "arguments", "matches"), [
    (Rule("pay", "allow", arguments={"path": "/data/[a-z]+"}), FILE, True),
    # the whole of it, and no more lines
    (Rule("pay", "allow", arguments={"path": "/data"}), FILE, False),
    (Rule("pay", "allow", arguments={"path": "/data/.*"}), {"path": "/data/a\nb"}, False),
    (Rule("pay", "deny", arguments={"path": "rm .*"}), {"path": "rm a\nb"}, True),
    # what cannot be told: never allowed, always asked about
    (Rule("pay", "allow", arguments={"path": ".*"}), {}, False),
    (Rule("pay", "allow", arguments={"path": ".*"}), {"path": 7}, False),
    (Rule("pay", "deny", arguments={"path": "/etc/.*"}), {}, True),
    (Rule("pay", "ask", arguments={"path": "/etc/.*"}), {"path": ["/etc/passwd"]}, True),
    (Rule("pay", "deny", arguments={"path": "/etc/.*"}), FILE, False),
    # all of them
    (Rule("pay", "allow", arguments={"path": ".*", "amount": SMALL}), FILE, False),
    (Rule("pay", "allow", arguments={"path": ".*", "amount": SMALL}), {**FILE, "amount": 9}, True),
    (Rule("pay", "deny", arguments={"path": "/home/.*", "amount": {"minimum": 9}}), FILE, False),
    # with a condition, both
    (Rule("pay", "allow", when="len(path) < 4", arguments={"path": ".*"}), FILE, False),
], ids=str)  # fmt: skip
def test_a_rule_holds_for_arguments_that_meet_its_constraints(rule, arguments, matches):
    assert rule.matches(WRITE, arguments) is matches


def test_a_constraint_takes_linear_time_and_matches_no_part():
    hostile = {"path": "a" * 100_000 + "!"}
    assert not Rule("pay", "allow", arguments={"path": "(a+)+"}).matches(WRITE, hostile)
    for pattern in ("(?=a)b", r"(a)\1", "a)|(b", "[", 7, None):
        with pytest.raises(SetupError):
            Rule("pay", "allow", arguments={"path": pattern})
    with pytest.raises(SetupError, match="says no type"):
        Rule("pay", "allow", arguments={"amount": {"maximum": 9}})
    with pytest.raises(ConfigError, match="write a table"):
        Rule("pay", "allow", arguments=["path"])


def test_no_rule_grants_a_permission():
    assert (
        Policy(rules=[Rule("pay", "allow")]).judge(ADMIN, {"amount": 1}).decision
        is DENY
    )


def test_a_rule_counts_more_than_risk_and_than_the_tool():
    policy = Policy(rules=[Rule("pay", "allow")])
    assert (
        policy.judge(made(effect="destructive", approve=True), {"amount": 1}).decision
        is ALLOW
    )


@pytest.mark.parametrize(("rules", "tool", "required_approvals"), [
    ([Rule("pay", "ask", required_approvals=2)], WRITE, 2),
    # the larger number holds
    ([Rule("pay", "ask", required_approvals=2)], made(write=Write(required_approvals=3)), 3),
    ([Rule("pay", "ask")], made(write=Write(required_approvals=2)), 2),
    ([Rule("pay", "ask", when="amount > 90", required_approvals=2), Rule("pay", "ask")], WRITE, 1),
    ([], made(approve="amount > 10", write=Write(required_approvals=2)), 2),
    # without `approve`, it asks each time
    ([], made(write=Write(required_approvals=2)), 2),
    ([], made(effect="destructive", write=Write(required_approvals=2)), 2),
    ([], DESTRUCTIVE, 1),
])  # fmt: skip
def test_a_rule_and_a_tool_say_how_many_people_must_agree(
    rules, tool, required_approvals
):
    verdict = Policy(rules=rules).judge(tool, {"amount": 50})
    assert (verdict.decision, verdict.required_approvals) == (ASK, required_approvals)


@pytest.mark.parametrize(("policy", "tool", "reason"), [
    (Policy(rules=[Rule("pay", "deny", reason="not on Sunday")]), WRITE, "not on Sunday"),
    (Policy(rules=[Rule("p*", "deny")]), WRITE, "rule for p*: deny"),
    (Policy(), ADMIN, "pay needs the permission admin"),
    (Policy(), DESTRUCTIVE, "pay has high risk"),
    (Policy(), made(approve="amount > 10"), "pay asks for approval when amount > 10"),
    (Policy(), READ, "within the policy"),
])  # fmt: skip
def test_a_verdict_says_what_decided(policy, tool, reason):
    assert policy.judge(tool, {"amount": 50}).reason == reason


# ---------------------------------------------------------------------- mistakes and files


@pytest.mark.parametrize("made_wrong", [
    lambda: Policy(max_permission="root"),
    lambda: Policy(ask_from="never"),
    lambda: Policy(approval_s="7 days"),
    lambda: Policy(approval_s=True),
    lambda: Rule(then="permit"),
    lambda: Rule(tool=7),
    lambda: Rule(when="amount >"),
    lambda: Rule(required_approvals=0),
    lambda: Rule(required_approvals=True),
    lambda: Rule(then="allow", required_approvals=2),
    lambda: made(write=Write(required_approvals=0)),
    lambda: made(write=Write(required_approvals="2")),
])  # fmt: skip
def test_a_mistake_is_found_when_the_policy_is_made(made_wrong):
    with pytest.raises((ConfigError, ToolDefinitionError)):
        made_wrong()


@pytest.fixture
def toml(tmp_path):
    def read(text: str) -> Policy:
        path = tmp_path / "policy.toml"
        path.write_text(text, encoding="utf-8")
        return Policy.from_toml(path)

    return read


@pytest.mark.parametrize(("text", "policy"), [
    ("", Policy()),
    ('max_permission = "read"', Policy("read")),
    ('ask_from = "low"', Policy(ask_from="low")),
    ('ask_from = "never"', Policy(ask_from=None)),
    ('[[rules]]\ntool = "付款"\nthen = "deny"\nreason = "不行"', Policy(rules=[Rule("付款", "deny", reason="不行")])),
    (
        '[[rules]]\ntool = "a"\nrequired_approvals = 2',
        Policy(rules=[Rule("a", required_approvals=2)]),
    ),
    ('[[rules]]\ntool = "a"\n[[rules]]\nwhen = "x > 1"', Policy(rules=[Rule("a"), Rule(when="x > 1")])),
])  # fmt: skip
def test_a_policy_is_read_from_a_file(toml, text, policy):
    assert toml(text) == policy


@pytest.mark.parametrize(("text", "complaint"), [
    ('max_permision = "read"', "'max_permision' is no key of a policy; its keys are max_permission, ask_from, rules"),
    ('[[rules]]\ntool = "a"\nif = "x > 1"', "'if' is no key of a rule; its keys are tool, then, when, reason"),
    ('[[rules]]\n_holds = "x"', "'_holds' is no key of a rule"),
    ('[[rules]]\nthen = "permit"', "permit"),
    ('[[rules]]\nwhen = "x >"', "is not a condition"),
    ("[[rules]]\ntool = 7", "no name"),
    ("[[rules]]\nrequired_approvals = 1.5", "a whole number, at least 1"),
    ('[[rules]]\nthen = "deny"\nrequired_approvals = 2', "which only 'ask' takes"),
    ("[[rules]]\nwhen = 7", "policy.toml"),
    ("rules = 7", "rules is 7; each rule is a table [[rules]]"),
    ('approval_s = "7 days"', "approval_s is '7 days'; it is a number of seconds"),
    ('rules = "x"', "policy.toml"),
    ("rules = [7]", "policy.toml"),
    ("ask_from = 7", "ask_from is 7"),
    ("max_permission =", "policy.toml"),
])  # fmt: skip
def test_a_mistake_in_a_file_is_told_with_the_file(toml, text, complaint):
    with pytest.raises(ConfigError) as told:
        toml(text)
    assert complaint in str(told.value)
    assert "policy.toml" in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.toml"):
        Policy.from_toml(tmp_path / "nothing.toml")


def test_a_file_that_is_no_text_is_told(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SetupError, match=r"policy\.toml"):
        Policy.from_toml(path)
