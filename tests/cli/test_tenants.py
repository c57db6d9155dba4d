"""What an administrator sees of one tenant: `--scope` of the commands that list."""

import json

import pytest

import handrail as hr
from handrail.testing import ScriptedModel


@pytest.fixture
def cli_with_tenants(cli, tmp_path, monkeypatch):
    """The commands over a store in which two tenants, and nobody's runs, have the same names."""

    @hr.tool(effect="write", key="ticket:{number}")
    def create(number: int) -> str:
        """Create a ticket."""
        return f"ticket {number}"

    @hr.tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store = f"sqlite:///{tmp_path}/h.db"
    monkeypatch.setenv("HANDRAIL_STORE", store)
    with hr.SyncRuntime([create, pay], store=store) as runtime:
        for scope in ("acme", "globex", ""):
            runtime.call("create", {"number": 1}, run="r", scope=scope)
            runtime.call("pay", {"amount": 1}, run="r", scope=scope)
            model = ScriptedModel(["Hello."])
            runtime.run("Hi.", model=model, run_id="x", scope=scope)
    return cli


@pytest.mark.parametrize(
    ("scope", "prefix"), [("acme", "@acme/"), ("globex", "@globex/"), ("", "")]
)
def test_the_lists_show_what_belongs_to_one_tenant(cli_with_tenants, scope, prefix):
    def listed(*command):
        return json.loads(cli_with_tenants(*command, "--scope", scope, "--json").stdout)

    (run,) = listed("runs", "list")["runs"]
    (question,) = listed("approvals", "list")["questions"]
    (write,) = listed("ledger", "list")["writes"]
    assert run["run_id"] == f"{prefix}x"
    assert (question["run_id"], write["run_id"]) == (f"{prefix}r", f"{prefix}r")
    exported = cli_with_tenants("audit", "export", "--scope", scope).stdout
    runs = {json.loads(line)["run_id"] for line in exported.splitlines()}
    assert runs == {f"{prefix}r", f"{prefix}x"}
    last = cli_with_tenants("audit", "tail", "-n", "1", "--scope", scope, "--json")
    assert json.loads(last.stdout)["run_id"] in runs


def test_without_a_scope_the_lists_show_all_tenants(cli_with_tenants):
    def listed(*command):
        return json.loads(cli_with_tenants(*command, "--json").stdout)

    assert len(listed("runs", "list")["runs"]) == 3
    assert len(listed("approvals", "list")["questions"]) == 3
    assert len(listed("ledger", "list")["writes"]) == 3
    assert cli_with_tenants("runs", "list", "--scope", "@acme").stdout == ""


def test_the_writes_of_a_tenants_run_are_listed_by_the_runs_name(cli_with_tenants):
    for run, scope in (("@acme/r", "acme"), ("r", "")):
        found = cli_with_tenants("ledger", "list", "--run", run, "--json")
        (write,) = json.loads(found.stdout)["writes"]
        assert (write["scope"], write["tool"]) == (scope, "create")
