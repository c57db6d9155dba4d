"""`handrail check`: the production checklist on the command line."""

import json
from pathlib import Path

import pytest

DEPLOYED = Path(__file__).parents[2] / "examples" / "deployment" / "shop.py"

EXAMPLES = '''
import handrail as hr

@hr.tool(effect="read", examples=[{"order_id": "A-1"}])
async def get_order(order_id: str) -> dict[str, int]:
    """Look an order up by its number and return what was paid, in euros.

    Args:
        order_id: Such as "A-1".
    """
    return {"paid": PAID}
'''


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A store that keeps what it is given, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/kept.db"


def orders(tmp_path, paid):
    file = tmp_path / "orders.py"
    file.write_text(EXAMPLES.replace("PAID", paid), encoding="utf-8")
    return str(file)


def test_what_lacks_nothing_passes(cli, tmp_path, kept):
    result = cli("check", orders(tmp_path, "49"), "--store", kept, "--run")
    assert (result.exit_code, "MISSING" in result.stdout) == (0, False)
    assert result.stdout.endswith("13 of 13 lines pass\n")


def test_the_tools_that_are_deployed_in_the_examples_lack_nothing(cli, kept):
    result = cli("check", str(DEPLOYED), "--store", kept)
    assert (result.exit_code, "MISSING" in result.stdout) == (0, False)


def test_what_is_missing_is_told_with_the_parameter_that_ends_it(cli, shop, kept):
    result = cli("check", shop, "--store", kept, "--missing")
    assert result.exit_code == 1
    assert "MISSING  idempotency  a retry creates the ticket twice: " in result.stdout
    assert '-> key="note:{order_id}"' in result.stdout
    assert " pass " not in result.stdout.rpartition("\n\n")[0]


def test_an_example_that_breaks_its_promise_fails_the_check(cli, tmp_path, kept):
    result = cli(
        "check", orders(tmp_path, "'much'"), "--store", kept, "--run", "--missing"
    )
    assert result.exit_code == 1
    assert "it returned what it did not promise: at paid" in " ".join(
        result.stdout.split()
    )


def test_examples_are_run_only_when_asked_for(cli, tmp_path, kept):
    assert cli("check", orders(tmp_path, "'much'"), "--store", kept).exit_code == 0


def test_the_store_of_the_settings_is_the_projects(cli, tmp_path, kept):
    (tmp_path / "handrail.toml").write_text(
        f'[store]\nplace = "{kept}"\n', encoding="utf-8"
    )
    assert cli("check", orders(tmp_path, "49"), "--missing").exit_code == 0


def test_a_store_in_memory_keeps_no_record(cli, tmp_path, kept):
    result = cli("check", orders(tmp_path, "49"), "--missing")
    assert (result.exit_code, 'store="sqlite:///handrail.db"' in result.stdout) == (
        1,
        True,
    )


def test_the_list_as_json_is_one_document(cli, shop, kept):
    document = json.loads(cli("check", shop, "--store", kept, "--json").stdout)
    line = next(
        line
        for line in document["lines"]
        if line["item"] == "idempotency" and line["tool"] == "note"
    )
    assert (document["v"], document["pass"], line["pass"]) == (1, False, False)
    assert line["trouble"] == "a retry creates the ticket twice"


def test_without_a_place_it_says_how_to_name_one(cli):
    result = cli("check")
    assert result.exit_code == 2
    assert "Name where the tools are" in result.stderr


def test_a_policy_by_which_people_approve_their_own_calls_is_named(cli, shop, kept):
    policy = Path("policy.toml")
    policy.write_text("own_approval = true\n")
    words = ("check", shop, "--store", kept, "--policy", str(policy), "--json")
    lines = json.loads(cli(*words).stdout)["lines"]
    (line,) = [
        each for each in lines if each["item"] == "approvals" and not each["tool"]
    ]
    assert line["pass"] is False
    assert line["says"] == "the person on whose behalf a call is made may approve it"
