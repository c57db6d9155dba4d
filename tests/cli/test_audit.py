"""`handrail audit`: the last records, whether the chain holds, and all of it for other programs."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import handrail as hr
from handrail.audit import log_key
from handrail.audit.chain import verify
from handrail.errors import ConfigError
from handrail.records import AuditEntry
from handrail.stores.sqlite import SqliteStore

KEY = b"a key of the deployment"


class Log:
    """A store in a file with some records in its log."""

    def __init__(self, file, key):
        self.file, self.key = file, key

    def append(self, *notices):
        with SqliteStore(self.file) as store:
            store.audit_key = self.key
            store.append_audit(notices).result(10)

    def change(self, statement):
        """Change the log behind the store's back."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as file:
            file.execute(statement)

    @property
    def records(self):
        with SqliteStore(self.file) as store:
            return store.log().result(10)


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """Make a store with some records in its log."""

    def make(*, key=b"", count=5):
        log = Log(tmp_path / "kept.db", key)
        log.append(
            *(
                AuditEntry(f"r_{n % 2}", "CallFinished", {"tool": "refund", "n": n})
                for n in range(1, count + 1)
            )
        )
        monkeypatch.setenv("HANDRAIL_STORE", f"sqlite:{log.file}")
        return log

    return make


def test_what_a_run_decides_and_does_is_in_the_log(deployed):
    made = deployed()
    run, _ = made.begin("--yes-to", "high")
    lines = made(
        "audit", "tail", "-n", "100", "--run", run, "--json"
    ).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    of_the_write = [
        record["event"]
        for record in records
        if record["body"].get("tool") == "delete_order"
    ]
    assert of_the_write == [
        "CallAdmitted",
        "ApprovalAsked",
        "ApprovalGiven",
        "AttemptStarted",
        "CallFinished",
    ]
    assert made("audit", "verify").exit_code == 0


def test_the_last_records_are_printed_in_order(cli, logged):
    logged()
    lines = cli("audit", "tail", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["4", "5"]
    assert '{"n": 5, "tool": "refund"}' in lines[1]  # canonical, as it is hashed


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_record_is_wrapped_at_words_and_set_in_below_its_head(
    cli, logged, monkeypatch, width
):
    body = {
        "arguments": {"order_id": "A-1"},
        "arguments_sha256": "ab" * 32,
        "why": "low risk, as every read is",
    }
    logged(count=0).append(AuditEntry("r_1", "CallAdmitted", body))
    whole = cli("audit", "tail").stdout
    assert whole.count("\n") == 1  # for whoever picks lines out of a pipe
    monkeypatch.setenv("COLUMNS", str(width))
    head, *below = cli("audit", "tail").stdout.splitlines()
    assert head.split()[-1] == "CallAdmitted"
    assert all(line.startswith("         ") and len(line) <= width for line in below)
    assert " ".join([head, *map(str.strip, below)]).split() == whole.split()


def test_the_records_of_one_run_can_be_picked(cli, logged):
    logged()
    told = [
        json.loads(line)
        for line in cli("audit", "tail", "--run", "r_1", "--json").stdout.splitlines()
    ]
    assert [record["seq"] for record in told] == [1, 3, 5]


def test_following_prints_what_is_added_once_and_ends_with_ctrl_c(
    cli, logged, monkeypatch
):
    log = logged()

    def wait(_):
        if len(log.records) >= 7:
            raise KeyboardInterrupt
        log.append(AuditEntry("r_2", "RunEnded", {"status": "done"}))

    monkeypatch.setattr(time, "sleep", wait)
    result = cli("audit", "tail", "-n", "1", "--follow")
    assert result.exit_code == 130
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["5", "6", "7"]


def test_an_empty_log_is_no_result_and_no_error(cli, logged):
    logged(count=0)
    result = cli("audit", "tail")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "",
        "the log is empty\n",
    )
    assert cli("audit", "verify").stdout.startswith("0 records verified")


def test_what_a_model_wrote_cannot_move_the_cursor(cli, logged):
    logged().append(AuditEntry("r_\x1b[2K", "RunEnded", {"reason": "\u202e"}))
    shown = cli("audit", "tail").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_chain_that_holds_is_said_to_and_how_much_that_proves(cli, logged):
    log = logged()
    told = cli("audit", "verify")
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        "5 records verified: none was changed, removed or inserted",
        "unknown without a checkpoint (--checkpoint): whether records were cut off at the end",
        "unknown without a key (--key-file): whether somebody who may write to the store has rewritten the log",
        f"the last is 5, {log.records[-1].hash}",
    ]


def test_a_log_of_many_pages_is_checked_whole(cli, logged, monkeypatch):
    monkeypatch.setattr("handrail.cli.commands.audit.PAGE", 2)
    logged(count=7)
    assert json.loads(cli("audit", "verify", "--json").stdout)["records"] == 7


# SQLite's own `json_extract` takes the first of them, we the last
TWICE = """replace(body, '"n":3', '"n":99,"n":3')"""
DEEP = "replace(hex(zeroblob(50000)), '0', '[')"


@pytest.mark.parametrize(
    "body", ["""replace(body, '"n":3', '"n":99')""", "'{'", "''", TWICE, DEEP]
)
def test_a_record_that_was_changed_is_named(cli, logged, body):
    log = logged()
    log.change(f"UPDATE audit SET body = {body} WHERE seq = 3")
    result = cli("audit", "verify")
    assert result.exit_code == 1
    assert result.stdout == (
        "the log is broken: record 3 was changed, or hashed with another key; the 2 records before it are intact\n"
    )
    told = json.loads(cli("audit", "verify", "--json").stdout)
    assert (told["ok"], told["records"], told["broken"]["seq"], told["last"]) == (
        False,
        2,
        3,
        None,
    )


def test_a_tail_that_was_cut_off_is_found_against_a_checkpoint(cli, logged, tmp_path):
    log = logged()
    checkpoint = tmp_path / "checkpoint.json"
    checkpoint.write_text(cli("audit", "tail", "-n", "1", "--json").stdout)
    assert (
        "with the checkpoint at 5"
        in cli("audit", "verify", "--checkpoint", str(checkpoint)).stdout
    )
    log.change("DELETE FROM audit WHERE seq > 3")
    assert cli("audit", "verify").exit_code == 0  # it cannot be seen from the log alone
    result = cli("audit", "verify", "--checkpoint", str(checkpoint))
    assert result.exit_code == 1
    assert "the log ends with record 3; the checkpoint is record 5" in result.stdout


def test_an_export_is_a_checkpoint_too(cli, logged, tmp_path):
    log = logged()
    file = tmp_path / "audit.jsonl"
    file.write_text(cli("audit", "export").stdout)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        each.as_json() for each in log.records
    ]
    assert cli("audit", "verify", "--checkpoint", str(file)).exit_code == 0


def test_a_log_with_a_key_is_checked_with_that_key(cli, logged, tmp_path):
    logged(key=KEY)
    right, wrong = tmp_path / "right.key", tmp_path / "wrong.key"
    right.write_bytes(KEY + b"\n")
    wrong.write_bytes(b"another")
    assert cli("audit", "verify", "--key-file", str(right)).exit_code == 0
    assert cli("audit", "verify", "--key-file", str(wrong)).exit_code == 1
    assert cli("audit", "verify").exit_code == 1


@pytest.mark.parametrize(("option", "text", "says"), [
    ("--key-file", None, "there is no file"),
    ("--key-file", " \n", "holds no key: it is empty"),
    ("--checkpoint", None, "there is no file"),
    ("--checkpoint", "", "holds no checkpoint; write one with: handrail audit tail -n 1 --json"),
    ("--checkpoint", "{", "is not JSON"),
    ("--checkpoint", '{"seq": "5"}', "holds no checkpoint"),
    ("--checkpoint", '{"seq": 0, "hash": ""}', "holds no checkpoint"),
    ("--checkpoint", '{"seq": true, "hash": "00"}', "holds no checkpoint"),
])  # fmt: skip
def test_a_file_that_is_no_key_or_no_checkpoint_is_one_sentence(
    cli, logged, tmp_path, option, text, says
):
    logged()
    file = tmp_path / "given"
    if text is not None:
        file.write_text(text)
    result = cli("audit", "verify", option, str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.fixture
def key_file(tmp_path):
    """The key of a deployment in a file, as an editor leaves it."""
    file = tmp_path / "audit.key"
    file.write_bytes(KEY + b"\n")
    return str(file)


@hr.tool(effect="write")
def add(amount: int) -> int:
    """Add an amount."""
    return amount


def test_one_key_file_serves_programs_that_name_their_store_the_command_line_and_the_check(
    deployed, key_file, monkeypatch
):
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", key_file)
    made = deployed()
    made.begin()
    assert (
        made("approvals", "approve", made.question()["id"], "--by", "anna").exit_code
        == 0
    )
    with hr.SyncRuntime([add], store=made.place) as runtime:
        runtime.call("add", {"amount": 1})
    assert made("audit", "verify").exit_code == 0
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        assert verify(store.log().result(10), keys=[KEY])[1] is None


def test_the_settings_of_a_project_name_the_key_too(
    cli, logged, key_file, tmp_path, monkeypatch
):
    logged(key=KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handrail.toml").write_text('[store]\naudit_key_file = "audit.key"\n')
    assert cli("audit", "verify").exit_code == 0
    # and the environment goes before it
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", "nowhere.key")
    result = cli("audit", "verify")
    assert (result.exit_code, "there is no file nowhere.key" in result.stderr) == (
        2,
        True,
    )


@pytest.mark.parametrize(("of_log", "given", "says"), [
    (KEY, None, "was hashed with a key, and none is given"),
    (KEY, b"another", "was hashed with another key"),
    (b"", KEY, "the audit log is written without a key"),
])  # fmt: skip
def test_no_word_is_heard_and_no_run_begun_that_would_spoil_the_log(
    deployed, tmp_path, monkeypatch, of_log, given, says
):
    files = {
        key: tmp_path / f"{number}.key" for number, key in enumerate((KEY, b"another"))
    }
    for key, file in files.items():
        file.write_bytes(key)
    made = deployed()
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(files[of_log]) if of_log else "")
    run, _ = made.begin()
    question = made.question()["id"]
    before = made("audit", "export").stdout
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(files[given]) if given else "")
    for words in (
        ("approvals", "approve", question), ("approvals", "deny", question), ("runs", "cancel", run),
        ("runs", "resume", run, "--tools", made.tools), ("run", "Delete A-1.", "--tools", made.tools),
    ):  # fmt: skip
        result = made(*words)
        assert (result.exit_code, says in result.stderr) == (2, True), words
    with pytest.raises(ConfigError, match=says):
        hr.SyncRuntime(store=made.place)
    assert made.question()["id"] == question  # whoever only looks needs no key
    assert made("audit", "export").stdout == before


def test_a_key_for_a_log_that_takes_none_is_refused():
    class Log:
        """A log of somebody else."""

        def append_audit(self, notices): ...
        def log(self, *, after=0, run_id="", most=1000): ...

    with pytest.raises(ConfigError, match="takes none"):
        log_key.give(Log(), "audit.key")


@pytest.mark.parametrize("verb", ["tail", "verify", "export"])
def test_a_store_without_a_log_says_so(cli, verb):
    result = cli("audit", verb, "--store", "memory:")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the store 'memory:' keeps no audit log" in result.stderr


def test_a_key_is_replaced_while_a_program_writes_and_nothing_is_lost(
    cli, tmp_path, key_file, monkeypatch
):
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", key_file)
    place = f"sqlite:///{tmp_path}/handrail.db"
    old = str(tmp_path / "audit.key.1")

    def audit(*words):
        return cli("audit", *words, "--store", place)

    with hr.SyncRuntime([add], store=place) as runtime:
        runtime.call("add", {"amount": 1})
        Path(key_file).rename(old)
        Path(key_file).write_text("a" * 32)
        runtime.call("add", {"amount": 2})  # under the old key
        said = audit("rotate-key", "--old-key-file", old, "--by", "anna")
        assert said.exit_code == 0, said.stderr
        runtime.call("add", {"amount": 3})
    with hr.SyncRuntime([add], store=place) as runtime:
        runtime.call("add", {"amount": 4})
    both = audit("verify", "--key-file", old, "--key-file", key_file)
    assert both.exit_code == 0, both.stderr
    one = audit("verify")
    assert one.exit_code == 1
    assert "record 1 was changed, or hashed with another key" in one.stderr + one.stdout
    exported = audit("export").stdout
    assert "aaaa" not in exported
    records = [json.loads(line) for line in exported.splitlines()]
    names = [each["event"] for each in records]
    ending = names.index("AuditKeyReplaced")
    assert names[ending + 1] == "AuditKeyBegun"
    assert records[ending]["body"]["by"] == "anna"
    arguments = [
        each["body"]["arguments"] for each in records if each["event"] == "CallAdmitted"
    ]
    assert [each["amount"] for each in arguments] == [1, 2, 3, 4]
    again = audit("rotate-key", "--old-key-file", old)
    assert (again.exit_code, "another key" in again.stderr) == (2, True)


@pytest.mark.parametrize(("text", "says"), [
    ("short", "has 5 bytes"), (KEY.decode() * 4, "has already"), (None, "there is no file"), ("", "holds no key"),
])  # fmt: skip
def test_a_key_that_is_none_replaces_nothing(cli, tmp_path, monkeypatch, text, says):
    old = tmp_path / "audit.key.1"
    old.write_bytes(KEY * 4)
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(old))
    place = f"sqlite:///{tmp_path}/handrail.db"
    with hr.SyncRuntime([add], store=place) as runtime:
        runtime.call("add", {"amount": 1})
    new = tmp_path / "audit.key"
    if text is not None:
        new.write_text(text)
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(new))
    said = cli("audit", "rotate-key", "--old-key-file", str(old), "--store", place)
    assert (said.exit_code, says in said.stderr) == (2, True), said.stderr
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", str(old))
    assert cli("audit", "verify", "--store", place).exit_code == 0


def test_a_log_without_a_key_gets_its_first(cli, tmp_path, key_file, monkeypatch):
    place = f"sqlite:///{tmp_path}/handrail.db"
    with hr.SyncRuntime([add], store=place) as runtime:
        runtime.call("add", {"amount": 1})
    said = cli("audit", "rotate-key", "--store", place)
    assert (said.exit_code, "HANDRAIL_AUDIT_KEY_FILE" in said.stderr) == (2, True)
    Path(key_file).write_text("a" * 32)
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY_FILE", key_file)
    assert cli("audit", "rotate-key", "--store", place).exit_code == 0
    assert cli("audit", "verify", "--store", place).exit_code == 0
