"""The store in a file: the contract, and what can befall a file."""

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail import admin
from handrail.effects import ClaimState, Settle
from handrail.errors import ConfigError, HandrailError, StoreUnavailable
from handrail.stores import maintenance, sqlite
from handrail.stores.sqlite import VERSION, SqliteStore
from handrail.testing.contracts.claims import A_REFUND
from handrail.testing.contracts.runs import RunContract
from tests.stores.durable_contract import DurableContract


class TestSqliteStore(DurableContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder, self.opened = tmp_path, 0

    def open(self):
        self.opened += 1
        return self.again()

    def place(self):
        return f"sqlite:///{self.folder}/{self.opened}.db"

    def again(self):
        return SqliteStore(self.folder / f"{self.opened}.db")

    def pass_time(self, seconds):
        with (
            closing(
                sqlite3.connect(self.folder / f"{self.opened}.db", timeout=30)
            ) as file,
            file,
        ):
            file.execute(
                "UPDATE effects SET lease_until = lease_until - ?, begun = begun - ?",
                (seconds, seconds),
            )
            file.execute("UPDATE acts SET at = at - ?", (seconds,))
            file.execute("UPDATE kept SET expires = expires - ?", (seconds,))
            file.execute(
                "UPDATE locks SET until = until - ?, ticks = ticks - ?",
                (seconds, seconds),
            )
            file.execute("UPDATE approvals SET expires = expires - ?", (seconds,))


class TestSqliteRuns(RunContract):
    @pytest.fixture
    def store(self, tmp_path):
        with SqliteStore(tmp_path / "runs.db") as store:
            yield store


@pytest.fixture
def file(tmp_path):
    return tmp_path / "store.db"


def claimed(store):
    return store.claim(A_REFUND).result(10)


# -- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "lies"), [
    # four slashes once the folder's own is there: an absolute path
    ("sqlite:///{}/x.db", "{}/x.db"),
    ("sqlite:{}/x.db", "{}/x.db"),
    ("sqlite:///x.db", "x.db"),                 # beside the program
    ("sqlite:x.db", "x.db"),
])  # fmt: skip
def test_a_store_is_named_by_a_url_or_a_path(tmp_path, monkeypatch, place, lies):
    monkeypatch.chdir(tmp_path)
    runtime = hr.Runtime([], store=place.format(tmp_path))
    assert Path(lies.format(tmp_path)).exists()
    assert runtime.store.place == f"sqlite:{tmp_path}/x.db"
    runtime.store.close()


@pytest.mark.parametrize(("place", "words"), [
    ("", "is a file"),
    ("///", "is a file"),
    (":memory:", "'memory' is one in memory"),
    ("//host/x.db", "names a host"),
    ("///nowhere/x.db", "no directory"),
    (".", "is a directory"),
])  # fmt: skip
def test_a_place_where_no_store_can_be_is_refused_at_once(
    tmp_path, monkeypatch, place, words
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        SqliteStore(place)


def test_a_file_that_is_no_database_is_left_as_it_is(file):
    file.write_bytes(b"a letter, and not a short one" * 100)
    with pytest.raises(ConfigError, match="no SQLite database"):
        SqliteStore(file)
    assert file.read_bytes() == b"a letter, and not a short one" * 100


def test_a_database_of_something_else_is_left_as_it_is(file):
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE customers(id)")
    with pytest.raises(ConfigError, match="of something else"):
        SqliteStore(file)
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [
            ("customers",)
        ]


def test_the_tables_of_another_version_are_not_touched(file):
    SqliteStore(file).close()
    with closing(sqlite3.connect(file)) as newer, newer:
        newer.execute("INSERT INTO schema_version VALUES (?, 0)", (VERSION + 1,))
    with pytest.raises(
        ConfigError, match=f"version {VERSION + 1} and this handrail knows {VERSION}"
    ):
        SqliteStore(file)


def test_only_its_owner_may_read_the_file(file):
    SqliteStore(file).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused_at_once(file):
    SqliteStore(file).close()
    file.chmod(0o400)
    with pytest.raises(ConfigError, match="cannot be written to: Permission denied"):
        SqliteStore(file)


def test_every_commit_is_on_the_disk_before_anybody_is_told(file):
    """A crash of the machine cannot be staged here; that SQLite was told to wait for the disk can be seen."""
    with SqliteStore(file) as store:
        # FULL
        assert store.use_connection(
            lambda base: base._db.execute("PRAGMA synchronous").fetchone()
        ) == (2,)
        assert store.use_connection(
            lambda base: base._db.execute("PRAGMA journal_mode").fetchone()
        ) == ("wal",)


# -- while it is open -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("befalls", ["removed", "replaced"])
def test_a_file_that_went_away_takes_no_claim_until_it_is_back(file, befalls):
    with SqliteStore(file) as store:
        aside = file.rename(file.with_suffix(".aside"))
        if befalls == "replaced":
            file.write_bytes(aside.read_bytes())
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            claimed(store)
        aside.rename(file)
        assert claimed(store).state is ClaimState.FRESH


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_keeper_makes_no_file_where_one_of_its_process_was_moved_away(file, end):
    with SqliteStore(file) as store:
        claimed(store)
        beside = file.with_name(f"{file.name}{end}")
        aside = beside.rename(file.with_suffix(".aside"))
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            admin.keep(store, admin.Retention(runs_s=3600.0))
        assert not beside.exists()
        aside.rename(beside)
        assert admin.keep(store, admin.Retention(runs_s=3600.0)).runs == 0


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_store_whose_log_or_index_was_removed_takes_no_claim_that_others_would_not_see(
    file, end
):
    with SqliteStore(file) as store:
        beside = file.with_name(f"{file.name}{end}")
        aside = beside.rename(file.with_suffix(".aside"))
        with pytest.raises(StoreUnavailable, match=f"{end} was removed or replaced"):
            claimed(store)
        aside.rename(beside)
        assert claimed(store).state is ClaimState.FRESH


def test_a_second_store_on_the_file_lets_go_of_no_lock_so_nobody_removes_the_log_of_the_first(
    file,
):
    """Two runtimes of one process, while another process closes the file: it is not the last one that has it open."""
    leave = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM effects'); db.close()"
    with SqliteStore(file) as first, SqliteStore(file):
        subprocess.run([sys.executable, "-c", leave, file], check=True, timeout=30)
        assert file.with_name(f"{file.name}-wal").exists()
        assert claimed(first).state is ClaimState.FRESH
        with SqliteStore(file) as another:
            assert claimed(another).state is ClaimState.BUSY


@pytest.mark.slow
def test_a_full_disk_takes_no_claim_and_loses_nothing(file):
    """The kernel refuses to let the files grow, as it would on a full disk."""
    with SqliteStore(file) as store:
        fence = claimed(store).fence
        with no_file_grows_beyond(100_000):
            with pytest.raises(StoreUnavailable, match="full"):
                store.save_result("r1", "x" * 1_000_000).result(10)
            answers = [
                store.claim(replace(A_REFUND, key=f"{n}", guard=False))
                for n in range(3000)
            ]
            refused = [n for n, answer in enumerate(answers) if answer.exception(30)]
            assert refused
            assert {type(answers[n].exception()) for n in refused} == {StoreUnavailable}
        for n, answer in enumerate(answers):
            state = (
                store.claim(replace(A_REFUND, key=f"{n}", guard=False)).result(10).state
            )
            assert state is (
                ClaimState.FRESH if answer.exception() else ClaimState.BUSY
            )
        assert store.settle(Settle("", "refund:881", fence, "done", 20)).result(10)


@contextmanager
def no_file_grows_beyond(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_that_another_process_holds_is_waited_for_and_then_said_to_be_busy(
    file, monkeypatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    with (
        SqliteStore(file) as store,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process holds it"):
            claimed(store)
        other.execute("COMMIT")
        assert claimed(store).state is ClaimState.FRESH


FROZEN = """
import os, signal, sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock"
)
def test_a_process_that_was_frozen_in_a_transaction_is_named(file, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    with (
        SqliteStore(file) as store,
        subprocess.Popen([sys.executable, "-c", FROZEN, file]) as other,
    ):
        try:
            os.waitpid(other.pid, os.WUNTRACED)  # it has stopped
            with pytest.raises(
                StoreUnavailable,
                match=f"holds it, {other.pid}, which was stopped .*nothing was",
            ):
                claimed(store)
        finally:
            other.kill()
            other.wait()
        assert claimed(store).state is ClaimState.FRESH


def test_a_corrupted_file_takes_no_claim_and_says_what_to_do(file):
    with SqliteStore(file) as store:
        for n in range(300):
            store.claim(replace(A_REFUND, key=f"{n}", guard=False)).result(10)
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (size - 4096))
    with (
        pytest.raises(HandrailError, match="corrupted; restore it from a backup"),
        SqliteStore(file) as store,
    ):
        claimed(store)


# -- a life -----------------------------------------------------------------------------------------------------------

SHOP = """
import os, signal, sys
import handrail as hr

@hr.tool(effect="write", key="refund:{order_id}", timeout_s=0.3)
def refund(order_id: str) -> str:
    "Refund an order."
    with open("world", "a") as world:
        world.write(f"refunded {order_id}\\n")
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return "refunded"

with hr.SyncRuntime([refund], store="sqlite:///shop.db") as runtime:
    print(runtime.call("refund", {"order_id": sys.argv[2]}).text)
"""


@pytest.mark.proof
def test_a_write_whose_process_was_killed_in_it_is_not_repeated(tmp_path):
    def shop(*words):
        return subprocess.run(
            [sys.executable, "-c", SHOP, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert shop("dies", "881").returncode == -signal.SIGKILL
    again, other = shop("lives", "881"), shop("lives", "882")

    assert (tmp_path / "world").read_text() == "refunded 881\nrefunded 882\n"
    assert "IN_DOUBT" in again.stdout
    assert other.stdout == "refunded\n"


def test_a_write_whose_claim_cannot_be_made_does_not_run(tmp_path):
    ran = []

    @hr.tool(effect="write")
    def refund(order_id: str) -> str:
        """Refund an order."""
        ran.append(order_id)
        return "refunded"

    with hr.SyncRuntime([refund], store=f"sqlite:{tmp_path}/x.db") as runtime:
        (tmp_path / "x.db").unlink()
        told = runtime.call("refund", {"order_id": "881"})
        runtime.store.close()
    assert (told.ok, told.attempts, ran) == (False, 0, [])


def test_a_copy_can_show_that_a_text_is_the_result_that_came_back(file, tmp_path):
    with (
        SqliteStore(file) as source,
        SqliteStore(tmp_path / "copy.db") as target,
    ):
        maintenance.copy_store(source, target)
        [source_key] = source.use_connection(
            lambda database: database.run("SELECT key FROM digest_keys")
        )
        keys = target.use_connection(
            lambda database: database.run("SELECT key FROM digest_keys ORDER BY made")
        )
        assert len(keys) == 2
        assert keys[0] == source_key
    with SqliteStore(tmp_path / "copy.db") as target:
        assert target.digest_key.hex() == source_key[0]
