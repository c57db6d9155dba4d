"""`handrail doctor`: what this machine has."""

import json
import re
import sys

import pytest

from handrail.cli.commands.doctor import examine, mask_key
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.levels import list_sandboxes
from handrail.sandboxes.seccomp import filter_here


def test_what_is_needed_is_here(cli):
    result = cli("doctor", "--json")
    document = json.loads(result.stdout)
    found = {finding["subject"]: finding for finding in document["findings"]}
    assert (result.exit_code, document["v"]) == (0, 1)
    assert {
        "python",
        "pydantic",
        "httpx2",
        "click",
        "rich",
        "models",
        "terminal",
    } <= set(found)
    assert found["OPENAI_API_KEY"]["found"] == "not set"


def test_a_key_is_never_shown(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdefghijklmnop")
    result = cli("doctor")
    assert "0123456789" not in result.output
    assert "29 characters, ends in …mnop" in result.output


@pytest.mark.parametrize(("key", "shown"), [
    ("", ""),
    # its end would be most of it
    ("short", "set, 5 characters"),
    ("sk-" + "a" * 30, "set, 33 characters, ends in …aaaa"),
])  # fmt: skip
def test_a_mask_tells_one_key_from_another_and_no_more(key, shown):
    assert mask_key(key) == shown


def test_the_environment_that_changes_what_we_do_is_told():
    model = "openai:x@http://localhost:8000/v1"  # an address of one's own needs no key
    found = {
        finding.subject: finding.found
        for finding in examine({"HANDRAIL_MODEL": model, "NO_COLOR": "1"})
    }
    assert (found["HANDRAIL_MODEL"], found["NO_COLOR"]) == (model, "1")
    assert "FORCE_COLOR" not in found


def test_where_kept_things_are_looked_for_is_told_without_a_password(
    cli, shop, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert "none: what is recorded ends with the process" in cli("doctor").stdout
    cli(
        "call",
        "note",
        '{"order_id": "A-1"}',
        "--tools",
        shop,
        "--store",
        "sqlite:///handrail.db",
    )
    assert "sqlite:///handrail.db, in this folder: it opens" in cli("doctor").stdout
    (tmp_path / "handrail.toml").write_text(
        '[store]\nplace = "sqlite:///kept.db"\n', encoding="utf-8"
    )
    told = cli("doctor")
    assert "sqlite:///kept.db, by `place` in" in told.stdout
    assert (told.exit_code, "not there yet; it can be made" in told.stdout) == (0, True)
    assert not (tmp_path / "kept.db").exists()
    monkeypatch.setenv("HANDRAIL_STORE", "postgresql://me:secret@127.0.0.1:1/db")
    told = cli("doctor").stdout
    assert "postgresql://me:***@127.0.0.1:1/db, by HANDRAIL_STORE" in told
    assert "me:secret" not in told  # not "secret": a folder may be called so
    monkeypatch.setenv("HANDRAIL_STORE", "sqlit:///kept.db")
    told = cli("doctor")
    assert told.exit_code == 1
    assert "there is no store 'sqlit'; did you mean 'sqlite'?" in " ".join(
        told.stdout.split()
    )


@pytest.mark.parametrize(("variable", "value", "says"), [
    ("HANDRAIL_STORE", "postgresql://127.0.0.1:1/x", "no connection to"),
    ("HANDRAIL_STORE", "sqlite:////nope/x.db", "no file can be made in /nope: No such file or directory"),
    ("HANDRAIL_MODEL", "foo", "write `provider:name`"),
    ("HANDRAIL_MODEL", "opnai:x", "did you mean 'openai'?"),
    ("HANDRAIL_MODEL", "openai:x", "set OPENAI_API_KEY"),
])  # fmt: skip
def test_what_cannot_work_has_a_cross_and_a_reason(
    cli, monkeypatch, variable, value, says
):
    monkeypatch.setenv(variable, value)
    result = cli("doctor")
    subject = variable if variable.endswith("MODEL") else "store"
    (line,) = re.findall(rf"^✗ +{subject} .*", result.stdout, re.M)
    assert (result.exit_code, value in line, says in line) == (1, True, True), line


def test_a_store_that_is_none_has_a_cross(cli, monkeypatch, tmp_path):
    (tmp_path / "notes.txt").write_text("no database")
    monkeypatch.setenv("HANDRAIL_STORE", f"sqlite:{tmp_path}/notes.txt")
    assert re.search(r"^✗ +store ", cli("doctor").stdout, re.M)


def test_a_key_that_is_not_set_has_no_tick_and_is_no_error(cli, monkeypatch):
    result = cli("doctor")
    assert (
        result.exit_code,
        re.findall(r"^(.) +\w+_API_KEY", result.stdout, re.M),
    ) == (0, ["-"])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-any")
    assert re.findall(r"^(.) +\w+_API_KEY", cli("doctor").stdout, re.M) == ["✓"]


def test_each_sandbox_is_tried_and_timed_or_what_it_lacks_is_said():
    found = {result.subject: result for result in examine({})}
    for each in list_sandboxes():
        result = found[f"sandbox {each.level}"]
        assert result.ok, "none of them keeps handrail from working"
        assert result.there is (not each.lacks)
        if each.lacks:
            assert result.found == each.lacks
        else:
            assert re.fullmatch(
                r"works; an empty program takes [0-9]+ ms", result.found
            )


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the walls are Linux's"
)
def test_what_the_sandboxes_of_this_machine_are_built_of_is_told():
    told = {
        finding.subject: finding
        for finding in examine({})
        if finding.subject.startswith("wall")
    }
    assert [*told] == [
        "wall seccomp",
        "wall key ring",
        "wall user namespaces",
        "wall landlock",
    ]
    # none of them keeps handrail from working
    assert all(finding.ok for finding in told.values())
    assert told["wall seccomp"].there is bool(filter_here())
    if not Bubblewrap().lacks:  # a box that works has been built of these
        assert (told["wall seccomp"].there, told["wall user namespaces"].there) == (
            True,
            True,
        )
    assert re.match(r"ABI [1-9][0-9]*|missing", told["wall landlock"].found)


def test_where_the_key_of_the_audit_log_is_is_said_and_nothing_of_it(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(tmp_path / "audit.key"))
    missing = cli("doctor")
    assert (missing.exit_code, "there is no file" in missing.stdout) == (1, True)
    (tmp_path / "audit.key").write_text("open sesame")
    shown = cli("doctor").stdout
    assert "audit.key" in shown
    assert "sesame" not in shown
