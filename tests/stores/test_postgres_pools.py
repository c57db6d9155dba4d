"""What a store in Postgres says of a pooler that keeps no sessions, and of a database that cannot hold every text."""

import os
import pwd
import shutil
import socket
import subprocess

import pytest

import handrail as hr
from tests.stores.servers import START_S, somebody, started
from tests.support.drivers import until

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)

from handrail.stores.postgres import PostgresStore  # noqa: E402

SETTINGS = (
    "SELECT name, setting FROM pg_settings WHERE source = 'session' "
    "AND name NOT IN ('client_encoding', 'DateStyle') ORDER BY name"
)


@pytest.fixture(scope="module")
def server():
    server = started()
    yield server
    server.remove()


def takes_connections(path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.fixture
def pooled(server, tmp_path):
    """Start a PgBouncer before the server; give the address of the store behind it."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer: install the package pgbouncer")
    begun = []

    def begin(mode, **settings):
        folder = server.folder / f"pool-{tmp_path.name[-12:]}"
        folder.mkdir()
        settings = {
            "unix_socket_dir": folder,
            "listen_addr": "",
            "auth_type": "any",
            "pool_mode": mode,
            "logfile": folder / "log",
        } | settings
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        (folder / "ini").write_text(
            f"[databases]\n* = host={server.folder} user=handrail\n[pgbouncer]\n{lines}\n"
        )
        if user := somebody():
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        begun.append(
            subprocess.Popen(
                [program, folder / "ini"],
                user=user,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        place = f"postgresql://handrail@/postgres?host={folder}&port=6432"
        until(lambda: takes_connections(folder / ".s.PGSQL.6432"))
        return place

    yield begin
    for process in begun:
        process.terminate()
        process.wait(START_S)


@pytest.mark.server
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("transaction", {"default_pool_size": 3}),
        ("transaction", {"default_pool_size": 1}),
        # given in turns, two clients have one each for as long as they ask in turns
        ("transaction", {"default_pool_size": 2, "server_round_robin": 1}),
        ("transaction", {"default_pool_size": 3, "server_round_robin": 1}),
        ("statement", {"default_pool_size": 3}),
    ],
)
def test_a_pooler_that_keeps_no_session_is_refused_and_no_setting_stays_behind(
    pooled, mode, settings
):
    place = pooled(mode, **settings)
    for open_store in (PostgresStore, lambda place: hr.Runtime([], store=place)):
        with pytest.raises(hr.ConfigError, match="pool_mode = session"):
            open_store(place)
    with psycopg.connect(place, autocommit=True) as neighbour:
        assert neighbour.execute(SETTINGS).fetchall() == []
        assert (
            neighbour.execute("SELECT * FROM pg_prepared_statements").fetchall() == []
        )


@pytest.mark.server
def test_a_pooler_that_keeps_sessions_is_as_good_as_the_server(pooled):
    @hr.tool(effect="write", key="w:{number}", timeout_s=20)
    async def write(number: int) -> str:
        """Write."""
        return f"written {number}"

    place = pooled("session", default_pool_size=20)
    with hr.SyncRuntime([write], store=place) as runtime:
        assert runtime.call("write", {"number": 1}).value == "written 1"
        assert runtime.call("write", {"number": 1}).replayed


@pytest.mark.server
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_text_is_refused_when_it_is_opened(
    server, encoding
):
    name = f"old_{encoding.lower()}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        )
    place = psycopg.conninfo.make_conninfo(server.dsn, dbname=name)
    with pytest.raises(hr.ConfigError, match=f"is encoded in {encoding}"):
        PostgresStore(place)
