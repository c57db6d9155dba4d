"""Questions to databases: what is answered, and that nothing which is asked changes the world."""

import asyncio
import hashlib
import random
import sqlite3
import tracemalloc
from pathlib import Path

import pytest

import handrail as hr
from handrail.cli.loading import tools_from
from handrail.testing.checklist import check
from handrail_toolbox.sql import Databases
from handrail_toolbox.sql.database import Share
from handrail_toolbox.sql.guard import Query, check_query
from tests.stores.servers import psycopg, started

EXAMPLE = Path(__file__).parents[2] / "examples/toolbox/databases.py"
SCHEMA = """
CREATE TABLE users(id TEXT PRIMARY KEY, name TEXT NOT NULL, city TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, user_id TEXT NOT NULL REFERENCES users(id), amount REAL, note TEXT);
CREATE VIEW big_orders AS SELECT * FROM orders WHERE amount > 40;
INSERT INTO users VALUES ('U1', 'Ann', 'Oslo'), ('U2', '李雷', '北京'), ('U3', 'Bob', 'Oslo');
INSERT INTO orders VALUES (1, 'U1', 10.5, 'first'), (2, 'U2', 50.0, NULL), (3, 'U2', 70.25, 'it''s late');
"""

SHORT = Share(time_s=0.3, given_up=lambda: False, limit=100)


@pytest.fixture
def shop(tmp_path):
    """A SQLite file in a folder of its own."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    connection.close()
    return path


@pytest.fixture(scope="module")
def server():
    """A real Postgres with the same tables, a sequence, a role that may read them, and one that may write too."""
    server = started()
    with psycopg.connect(server.dsn) as connection:
        connection.execute(SCHEMA.encode())
        connection.execute(
            "CREATE SEQUENCE tickets; CREATE ROLE analyst LOGIN; GRANT pg_read_all_data TO analyst"
        )
        connection.execute(
            "CREATE ROLE clerk LOGIN; GRANT ALL ON users, orders, tickets, big_orders TO clerk"
        )
    yield server
    server.remove()


def address_of(engine, request):
    """Return the address of a database with the tables above."""
    if engine == "sqlite":
        return f"sqlite:///{request.getfixturevalue('shop')}"
    server = request.getfixturevalue("server")
    return (
        server.dsn
        if engine == "postgres"
        else server.dsn.replace("handrail@", f"{engine}@")
    )


@pytest.fixture(params=["sqlite", "postgres"])
def address(request):
    """The same tables in both engines."""
    return address_of(request.param, request)


def asked(address, tool="query", *, runtime=(), timeout_s=20.0, **arguments):
    """Call one tool over one database that the model knows as `shop`."""

    async def call():
        async with hr.Runtime(
            Databases({"shop": address}, timeout_s=timeout_s), **dict(runtime)
        ) as running:
            return await running.call(tool, {"database": "shop", **arguments})

    return asyncio.run(call())


def rows_of(address, sql, *parameters):
    result = asked(address, sql=sql, parameters=list(parameters))
    assert result.ok, result.text
    return result.value.rows


# ---------------------------------------------------------------------- what is answered


def test_tables_are_listed_with_their_columns(address):
    listed = {
        each["table"]: (each["kind"], each["columns"])
        for each in asked(address, "list_tables").value
    }
    assert listed == {
        "users": ("table", ["id", "name", "city"]),
        "orders": ("table", ["id", "user_id", "amount", "note"]),
        "big_orders": ("view", ["id", "user_id", "amount", "note"]),
    }


def test_a_table_is_described_with_its_keys(address):
    table = asked(address, "describe_table", table="Orders").value
    told = {
        column.name: (column.key, column.nullable, column.refers_to)
        for column in table.columns
    }
    assert told == {
        "id": (True, False, ""),
        "user_id": (False, False, "users.id"),
        "amount": (False, True, ""),
        "note": (False, True, ""),
    }


def test_a_table_that_is_not_there_is_answered_with_the_nearest(address):
    failure = asked(address, "describe_table", table="order").failure
    assert (failure.code, "`orders`" in failure.suggestion) == ("TABLE_NOT_FOUND", True)


@pytest.mark.parametrize(("sql", "parameters", "rows"), [
    ("SELECT name FROM users WHERE city = $1 ORDER BY name", ["Oslo"], [["Ann"], ["Bob"]]),
    ("SELECT name FROM users WHERE id IN ($1,$2) AND city <> $1", ["U1", "U2"], [["Ann"], ["李雷"]]),
    ("SELECT count(*) FROM orders WHERE amount > $1 AND note IS NULL;", [40], [[1]]),
    ("SELECT '$1', id FROM users WHERE id = $1 -- the first\n", ["U1"], [["$1", "U1"]]),
    ("WITH rich AS (SELECT user_id, sum(amount) AS total FROM orders GROUP BY user_id) "
     "SELECT u.name, total FROM rich JOIN users u ON u.id = rich.user_id WHERE total > 100", [], [["李雷", 120.25]]),
    ("SELECT id, rank() OVER (PARTITION BY user_id ORDER BY amount DESC) FROM orders ORDER BY id", [],
     [[1, 1], [2, 2], [3, 1]]),
    ("SELECT id FROM orders UNION ALL SELECT 9 EXCEPT SELECT 1 ORDER BY 1", [], [[2], [3], [9]]),
    ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i), count(*) FROM n", [],
     [[10, 4]]),
    ("SELECT coalesce(nullif(city, 'Oslo'), upper(substr(name, 1, 2))) FROM users ORDER BY id", [],
     [["AN"], ["北京"], ["BO"]]),
    ("SELECT CASE WHEN amount > 60 THEN 'high' ELSE 'low' END AS kind, count(*) FROM orders GROUP BY 1 ORDER BY 1", [],
     [["high", 1], ["low", 2]]),
    ("SELECT name FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id AND o.note LIKE $1)",
     ["%late"], [["李雷"]]),
    ("SELECT lag(id) OVER w FROM orders WINDOW w AS (ORDER BY id) ORDER BY id", [], [[None], [1], [2]]),
    ("SELECT coalesce($1, 'x')", [None], [["x"]]),
])  # fmt: skip
def test_a_query_that_reads_is_answered_by_both_engines(address, sql, parameters, rows):
    assert rows_of(address, sql, *parameters) == rows


@pytest.mark.parametrize(("sql", "rows"), [
    ("SELECT value FROM json_each('[3,4]')", [[3], [4]]),
    ("SELECT strftime('%Y', '2026-03-01'), typeof(1.5), printf('%05d', 7)", [["2026", "real", "00007"]]),
    ("SELECT group_concat(name, ';') FROM (SELECT name FROM users ORDER BY id)", [["Ann;李雷;Bob"]]),
])  # fmt: skip
def test_sqlite_answers_in_its_own_sql(shop, sql, rows):
    assert rows_of(f"sqlite:///{shop}", sql) == rows


@pytest.mark.parametrize(("sql", "rows"), [
    ("(SELECT max(amount) FROM big_orders)", [[70.25]]),
    ("SELECT g FROM generate_series(1, 3) g", [[1], [2], [3]]),
    ("SELECT '{\"a\": [1, 2]}'::jsonb -> 'a' ->> 0, interval '90 minutes'::text", [["1", "01:30:00"]]),
    ("SELECT array_agg(name ORDER BY id) FILTER (WHERE city = 'Oslo') FROM users", [["{Ann,Bob}"]]),
    ("SELECT date_trunc('month', date '2026-03-17')::date::text, extract(year FROM date '2026-03-17')",
     [["2026-03-01", "2026"]]),
    ("SELECT 1 AS same, 2 AS same", [[1, 2]]),
    ("SELECT DISTINCT ON (user_id) user_id, id FROM orders ORDER BY user_id, id DESC", [["U1", 1], ["U2", 3]]),
])  # fmt: skip
def test_postgres_answers_in_its_own_sql(server, sql, rows):
    assert rows_of(server.dsn, sql) == rows


@pytest.mark.parametrize(("sql", "parameters", "rows"), [
    ("SELECT id FROM users WHERE id = ANY(ARRAY[$1,$2]) ORDER BY id", ["U1", "U3"], [["U1"], ["U3"]]),
    ("SELECT $1 + $2, $3 * 2, $4", [1, 2**40, 1.5, True], [[2**40 + 1, 3.0, True]]),
    ("SELECT id FROM orders WHERE id = ANY(ARRAY[$1,$2]) ORDER BY id LIMIT $3", [3, 1, 1], [[1]]),
    ("SELECT left($1, $2)", ["北京市", 2], [["北京"]]),
    ("SELECT $1::jsonb ->> 'a'", ['{"a": 1}'], [["1"]]),
])  # fmt: skip
def test_values_reach_postgres_as_what_they_are(server, sql, parameters, rows):
    assert rows_of(server.dsn, sql, *parameters) == rows


@pytest.mark.parametrize(("sql", "rows"), [
    ("SELECT timestamptz 'infinity', date '-infinity', date '2026-03-01'", [["infinity", "-infinity", "2026-03-01"]]),
    ("SELECT 'NaN'::numeric, 1.50, 'NaN'::float8 = 'NaN'::float8", [["NaN", "1.50", True]]),
    ("SELECT interval '100 years 2 days', inet '10.0.0.1/8', ARRAY[1,2], 'x'::bytea",
     [["100 years 2 days", "10.0.0.1/8", "{1,2}", "\\x78"]]),
])  # fmt: skip
def test_values_of_postgres_that_python_has_no_type_for_are_told_as_text(
    server, sql, rows
):
    assert rows_of(server.dsn, sql) == rows


@pytest.mark.parametrize("sql", [
    "SELECT version()", "SELECT current_database()", "SELECT current_user", "SELECT user", "SELECT * FROM current_user",
    "SELECT session_user", "SELECT current_schema", "SELECT current_role", "SELECT current_catalog",
])  # fmt: skip
def test_the_connection_itself_cannot_be_asked_about(sql):
    with pytest.raises(hr.ToolError, match="cannot be read here"):
        check_query(sql, [], "postgres")


def test_columns_named_as_what_is_not_told_can_be_read():
    for sql in (
        'SELECT "user" FROM t',
        "SELECT t.user, current_date, now() FROM t",
        "SELECT count(*) AS user FROM t",
    ):
        assert check_query(sql, [], "postgres").text == sql
    # there it is a name as any other
    assert check_query("SELECT user FROM t", [], "sqlite").text


def test_numbers_that_json_has_not_are_words(shop, server):
    assert rows_of(f"sqlite:///{shop}", "SELECT 9e999, -9e999, 1.5") == [
        ["Infinity", "-Infinity", 1.5]
    ]
    found = rows_of(
        server.dsn, "SELECT 'NaN'::float8, 'Infinity'::float8, '-Infinity'::float4"
    )
    assert found == [["NaN", "Infinity", "-Infinity"]]


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\x07b\u202e"])
def test_what_an_engine_says_of_a_query_has_no_control_characters(address, name):
    failure = asked(address, sql=f'SELECT id FROM "{name}"').failure
    assert failure.code == "QUERY_FAILED" and failure.message.isprintable()


def test_a_pattern_that_would_hold_sqlite_for_seconds_is_refused(shop):
    """It cannot be interrupted within one GLOB; 200 characters over a megabyte are about a second."""
    pattern = "*" + "[a-z]" * 60
    failure = asked(
        f"sqlite:///{shop}", sql=f"SELECT name GLOB '{pattern}' FROM users"
    ).failure
    assert (failure.code, "too complex" in failure.message) == ("QUERY_FAILED", True)


@pytest.mark.parametrize("value", ["a\x00b", 2**70])
def test_a_value_that_cannot_be_sent_is_a_fault_of_the_query(server, value):
    failure = asked(server.dsn, sql="SELECT $1::int", parameters=[value]).failure
    assert (failure.code, failure.retryable) == ("QUERY_FAILED", False)


def test_a_view_that_is_a_trap_hides_nothing_else(shop):
    with sqlite3.connect(shop) as connection:
        connection.execute("CREATE VIEW trap AS SELECT load_extension('eve') AS a")
    connection.close()
    listed = {
        each["table"]: each["columns"]
        for each in asked(f"sqlite:///{shop}", "list_tables").value
    }
    assert (listed["trap"], listed["users"]) == ([], ["id", "name", "city"])
    assert not asked(f"sqlite:///{shop}", sql="SELECT * FROM trap").ok
    assert (
        "`users`"
        in asked(f"sqlite:///{shop}", sql="SELECT * FROM usrs").failure.suggestion
    )


@pytest.mark.parametrize("sql", [
    "SELECT replace(printf('%.*c', 900000, 'a'), 'a', 'bb')",
    "SELECT group_concat(printf('%.*c', 900000, 'a')) FROM users",
])  # fmt: skip
def test_no_value_of_sqlite_grows_beyond_a_megabyte(shop, sql):
    assert asked(f"sqlite:///{shop}", sql=sql).failure.code == "VALUE_TOO_LONG"


def test_a_file_that_is_not_there_is_told_as_that_and_not_made(tmp_path):
    failure = asked(f"sqlite:///{tmp_path}/shpo.db", sql="SELECT 1").failure
    assert (failure.code, failure.retryable, "has no file yet" in failure.message) == (
        "UNAVAILABLE",
        False,
        True,
    )
    assert list(tmp_path.iterdir()) == []


def test_the_example_answers_from_its_first_call_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with hr.SyncRuntime(tools_from([str(EXAMPLE)])) as runtime:
        assert runtime.call(
            "query", {"database": "desk", "sql": "SELECT name FROM desk_users"}
        ).value.rows == [["Ada"]]
        assert runtime.call("get_user", {"user_id": "U1"}).value["plan"] == "free"


def test_a_query_sees_a_file_that_another_process_writes(shop):
    writer = sqlite3.connect(shop)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO users VALUES ('U4', 'Zoe', 'Lima')")
    # not yet
    assert rows_of(f"sqlite:///{shop}", "SELECT count(*) FROM users") == [[3]]
    writer.commit()
    assert rows_of(f"sqlite:///{shop}", "SELECT count(*) FROM users") == [[4]]
    writer.close()


def test_full_text_search_of_sqlite_is_answered(shop):
    with sqlite3.connect(shop) as connection:
        connection.executescript(
            "CREATE VIRTUAL TABLE notes USING fts5(body); INSERT INTO notes VALUES ('a red bike')"
        )
    connection.close()
    sql = "SELECT highlight(notes, 0, '<', '>') FROM notes WHERE notes MATCH $1 ORDER BY bm25(notes)"
    assert rows_of(f"sqlite:///{shop}", sql, "bike") == [["a red <bike>"]]


def test_a_value_from_the_user_is_never_read_as_sql(address):
    hostile = "Oslo' OR 1=1; DROP TABLE users; --"
    assert rows_of(address, "SELECT name FROM users WHERE city = $1", hostile) == []
    assert rows_of(address, "SELECT $1", hostile) == [[hostile]]


@pytest.mark.parametrize(("sql", "parameters"), [
    ("SELECT $1", []),
    ("SELECT 1", [1]),
    ("SELECT $2", [1, 2]),
    ("SELECT '$1'", [1]),
    ("SELECT 1 -- $1", [1]),
])  # fmt: skip
def test_parameters_and_their_places_must_agree(address, sql, parameters):
    failure = asked(address, sql=sql, parameters=parameters).failure
    assert (failure.code, "$1" in failure.suggestion) == ("QUERY_REFUSED", True)


@pytest.mark.parametrize("sql", ["SELECT ?", "SELECT :a", "SELECT @a"])
def test_other_spellings_of_parameters_are_told_the_right_one(shop, sql):
    failure = asked(f"sqlite:///{shop}", sql=sql, parameters=["x"]).failure
    assert (failure.code, "$1" in failure.suggestion) == ("QUERY_REFUSED", True)


def test_the_databases_are_called_by_their_names_only(shop):
    tools = Databases({"shop": f"sqlite:///{shop}", "other": f"sqlite:///{shop}"})
    for tool in tools:
        assert tool.parameters["properties"]["database"]["enum"] == ["shop", "other"]
    failure = (
        hr.SyncRuntime(tools)
        .call("query", {"database": "sqlite:////etc/passwd", "sql": "SELECT 1"})
        .failure
    )
    assert failure.code == hr.Code.INVALID_ARGUMENTS


def test_the_tools_pass_lint_and_the_checklist_without_a_finding(shop):
    tools = Databases({"shop": f"sqlite:///{shop}"})
    assert (hr.lint(tools).findings, check(tools).missing) == ([], [])


# ---------------------------------------------------------------------- page by page


@pytest.fixture(scope="module")
def long_table(tmp_path_factory):
    """200,000 orders; what is said of them does not depend on their number, see the app for 2,000,000."""
    path = tmp_path_factory.mktemp("long") / "long.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY, note TEXT)")
        connection.execute(
            "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
            "SELECT i, 'order number ' || i FROM n"
        )
    connection.close()
    return f"sqlite:///{path}"


def test_a_select_without_limit_is_a_page_and_a_way_on(long_table):
    tracemalloc.start()
    first = asked(long_table, sql="SELECT * FROM orders")
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(first.value.rows), first.value.next, len(first.text) < 16 * 1024) == (
        100,
        100,
        True,
    )
    assert most_bytes < 8 * 1024 * 1024  # all of the rows would be some 30 MB
    second = asked(long_table, sql="SELECT * FROM orders", offset=first.value.next)
    assert second.value.rows[0] == [101, "order number 101"]


def test_the_pages_of_a_table_are_the_table(long_table):
    seen, offset = [], 199_000
    while offset is not None:
        page = asked(
            long_table,
            sql="SELECT id FROM orders ORDER BY id",
            limit=333,
            offset=offset,
        ).value
        seen += [row[0] for row in page.rows]
        offset = page.next
    assert seen == list(range(199_001, 200_001))


def test_postgres_gives_pages_too(server):
    page = asked(
        server.dsn,
        sql="SELECT g FROM generate_series(1, 1000000) g",
        limit=3,
        offset=10,
    ).value
    assert (page.rows, page.next) == ([[11], [12], [13]], 13)


def test_long_values_are_cut_and_bytes_are_counted(shop):
    (row,) = rows_of(f"sqlite:///{shop}", "SELECT printf('%.*c', 50000, 'x'), x'00ff'")
    assert (len(row[0]) < 1_100, row[0].endswith("x [cut]"), row[1]) == (
        True,
        True,
        "[2 bytes]",
    )


def test_a_gigabyte_is_cut_by_the_server_before_it_is_sent(server):
    (row,) = rows_of(server.dsn, "SELECT repeat('x', 1000000), 7")
    assert (len(row[0]) < 1_100, row[1]) == (True, 7)


def test_rows_of_many_columns_are_bounded_together(address):
    columns = ", ".join(f"replace('{'x' * 50}', 'x', 'long text ')" for _ in range(60))
    result = asked(address, sql=f"SELECT {columns} FROM orders a, orders b, orders c")
    assert (
        result.ok,
        len(result.text) <= 16 * 1024,
        result.value.next is not None,
    ) == (True, True, True)


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(("sql", "near"), [
    ("SELECT nme FROM users", "`name`"),
    ("SELECT * FROM user", "`users`"),
    ("SELECT u.citi FROM users u", "`city`"),
])  # fmt: skip
def test_a_misspelt_name_is_answered_with_the_nearest(address, sql, near):
    if "postgres" in address and "FROM user" in sql and "users" not in sql:
        pytest.skip("`user` is a word of Postgres: who is asking")
    failure = asked(address, sql=sql).failure
    assert (failure.code, near in failure.suggestion) == ("QUERY_FAILED", True)


def test_a_fault_is_told_in_the_words_of_the_engine(address):
    failure = asked(address, sql="SELECT count(id, name) FROM users").failure
    assert (
        failure.code in ("QUERY_FAILED", "QUERY_REFUSED")
        and "count" in failure.message.lower()
    )


@pytest.mark.parametrize("sql", [
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f, orders g, orders h, orders i, "
    # 3^16 rows
    "orders j, orders k, orders l, orders m, orders n, orders o, orders p",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
])  # fmt: skip
def test_a_query_without_end_is_interrupted_by_the_engine(address, sql):
    failure = asked(address, sql=sql, timeout_s=1.0).failure
    assert (failure.code, failure.retryable) == ("QUERY_TOO_SLOW", False)


def test_a_query_for_which_nobody_waits_any_more_is_ended_by_the_engine(address):
    endless = Query(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    database = next(iter(Databases({"shop": address})))._databases["shop"]
    with pytest.raises(hr.ToolError):
        database.query(endless, Share(time_s=600.0, given_up=lambda: True, limit=1))


def test_nothing_of_an_address_reaches_the_model(tmp_path):
    addresses = {
        "a": f"sqlite:///{tmp_path}/canary.db",
        "b": "postgresql://canary:canary@127.0.0.1:1/canary?connect_timeout=2",
        "c": f"sqlite:///{tmp_path}",
    }
    (tmp_path / "d.db").write_bytes(b"canary, and no database" * 100)
    addresses["d"] = f"sqlite:///{tmp_path}/d.db"
    with hr.SyncRuntime(Databases(addresses)) as runtime:
        for name in addresses:
            result = runtime.call(
                "query", {"database": name, "sql": "SELECT 1 FROM sqlite"}
            )
            assert (
                not result.ok
                and "canary" not in result.text
                and str(tmp_path) not in result.text
            ), result.text


@pytest.mark.parametrize(("addresses", "told"), [
    ({}, "at least one"),
    ({"a": "mysql://root:canary@db/x"}, "'a'"),
    ({"a": "sqlite://"}, "sqlite:///"),
    ({"a": "sqlite:///"}, "names no file"),
    ({"a": "postgresql://%%%canary"}, "'a'"),
])  # fmt: skip
def test_an_address_that_cannot_be_used_is_an_error_at_the_start(addresses, told):
    with pytest.raises(hr.ConfigError, match=told) as error:
        Databases(addresses)
    assert "canary" not in str(error.value)


# ---------------------------------------------------------------------- what must not happen

# Statements that change something, read what is not a table, or take time without end. Each is refused by the tool;
# and each is given to the engine without the guard, which must leave the world as it is by itself.
HARMFUL = {
    "sqlite": [
        "INSERT INTO users VALUES ('U9', 'Eve', '')",
        "UPDATE users SET name = 'Eve'",
        "DELETE FROM users",
        "REPLACE INTO users VALUES ('U1', 'Eve', '')",
        "DROP TABLE users",
        "CREATE TABLE eve(a)",
        "CREATE TEMP TABLE eve AS SELECT * FROM users",
        "ALTER TABLE users RENAME TO eve",
        "ATTACH 'HERE/eve.db' AS eve",
        "ATTACH 'file:HERE/shop.db?mode=rwc' AS eve",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO 'HERE/eve.db'",
        "VACUUM main INTO 'HERE/eve.db'",
        "REINDEX",
        "ANALYZE",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = WAL",
        "PRAGMA user_version = 7",
        "SELECT * FROM pragma_database_list",
        "SELECT 1 FROM pragma_wal_checkpoint",
        "SELECT * FROM pragma_table_info('users')",
        "SELECT sql FROM sqlite_master",
        "SELECT sql FROM main.sqlite_schema",
        "SELECT load_extension('HERE/eve.so')",
        "SELECT writefile('HERE/eve.txt', 'x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT edit('x', 'touch HERE/eve.txt')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT hex(zeroblob(1000000000))",
        "SELECT 1; DROP TABLE users",
        "SELECT 1; SELECT 2",
        "; DROP TABLE users",
        "SELECT 1 /*!50000 ; DROP TABLE users */",
        "WITH eve AS (DELETE FROM users RETURNING *) SELECT * FROM eve",
        "WITH eve AS (SELECT 1) DELETE FROM users",
        "EXPLAIN DELETE FROM users",
        "BEGIN IMMEDIATE",
        "SAVEPOINT eve",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT sum(length(replace(printf('%.*c', 3000, 'a'), 'a', u.name))) FROM users u, orders a, orders b, "
        "orders c, orders d, orders e, orders f, orders g, orders h, orders i, orders j, orders k, orders l, orders m",
    ],
    "postgres": [
        "INSERT INTO users VALUES ('U9', 'Eve', '')",
        "UPDATE users SET name = 'Eve'",
        "DELETE FROM users",
        "TRUNCATE users CASCADE",
        "DROP TABLE users CASCADE",
        "CREATE TABLE eve(a int)",
        "CREATE TEMP TABLE eve AS SELECT * FROM users",
        "CREATE FUNCTION eve() RETURNS int AS 'SELECT 1' LANGUAGE sql",
        "ALTER TABLE users RENAME TO eve",
        "GRANT ALL ON users TO PUBLIC",
        "COPY users TO 'HERE/eve.txt'",
        "COPY users TO PROGRAM 'touch HERE/eve.txt'",
        "COPY users FROM '/etc/passwd'",
        "SELECT * INTO eve FROM users",
        "SELECT * FROM users FOR UPDATE",
        "SELECT * FROM users FOR KEY SHARE NOWAIT",
        "WITH eve AS (DELETE FROM users RETURNING *) SELECT * FROM eve",
        "WITH eve AS (UPDATE users SET name = 'Eve' RETURNING *) SELECT * FROM eve",
        "WITH eve AS (SELECT 1) INSERT INTO users VALUES ('U9', 'Eve', '')",
        "MERGE INTO users u USING orders o ON o.user_id = u.id WHEN MATCHED THEN DELETE",
        "DO $$ BEGIN DELETE FROM users; END $$",
        "CALL eve()",
        "EXPLAIN ANALYZE DELETE FROM users",
        "SELECT 1; DROP TABLE users CASCADE",
        "SELECT 1; COMMIT; DROP TABLE users CASCADE",
        "COMMIT; DROP TABLE users CASCADE",
        "SET TRANSACTION READ WRITE",
        "SET ROLE NONE",
        "RESET ALL",
        "LISTEN eve",
        "NOTIFY eve",
        "LOCK TABLE users",
        "VACUUM",
        "CHECKPOINT",
        "LOAD 'eve'",
        "SELECT nextval('tickets')",
        "SELECT setval('tickets', 99)",
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT set_config('role', 'none', false)",
        "SELECT set_config('transaction_read_only', 'off', false), nextval('tickets')",
        "SELECT current_setting('data_directory')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_catalog.pg_read_file('/etc/passwd')",
        "SELECT \"pg_read_file\"('/etc/passwd')",
        "SELECT PG_READ_FILE/**/('/etc/passwd')",
        "SELECT U&\"pg\\005fread_file\"('/etc/passwd')",
        "SELECT * FROM pg_ls_dir('/')",
        "SELECT pg_stat_file('/etc/passwd')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_from_bytea(0, 'eve')",
        "SELECT lo_export(1, 'HERE/eve.txt')",
        "SELECT dblink('host=HERE', 'DROP TABLE users')",
        "SELECT query_to_xml('SELECT pg_read_file(''/etc/passwd'')', true, true, '')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(pg_read_file(''/etc/passwd''))')",
        "SELECT ts_rewrite('a'::tsquery, 'SELECT pg_sleep(100)::text::tsquery, ''b''::tsquery')",
        "SELECT pg_sleep(100)",
        "SELECT $1||pg_sleep(100)||$1||$1||pg_sleep(100)||$1",
        "SELECT E'\\\\', pg_sleep(100), E'\\\\'",
        "SELECT $eve$ $eve$, pg_sleep(100)",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
        "SELECT pg_reload_conf()",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_notify('eve', 'x')",
        "SELECT rolpassword FROM pg_authid",
        "SELECT query FROM pg_catalog.pg_stat_activity",
        "SELECT * FROM information_schema.tables",
        "SELECT usename FROM \"pg_shadow\"",
        "SELECT pg_relation_filepath('users')",
        "SELECT 1 /*!50000 ; DROP TABLE users */",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
        "SELECT length(repeat('x', 1000000000)) FROM generate_series(1, 1000)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ],
}  # fmt: skip
BOMBS = ("generate_series", "RECURSIVE", "zeroblob", "replace(printf")
"""What reads and computes only, and is ended by a limit instead of refused by its text."""


def file_world(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
    }


def server_world(server):
    """Everything that a statement above would change."""
    with psycopg.connect(server.dsn) as connection:
        return [
            sorted(connection.execute(each).fetchall())
            for each in (
                "SELECT * FROM users",
                "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'v', 'S')",
                "SELECT count(*) FROM pg_proc",
                "SELECT last_value, is_called FROM tickets",
                "SELECT count(*) FROM pg_largeobject_metadata",
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
                "SELECT relname, relacl::text FROM pg_class WHERE relname = 'users'",
                "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'",
            )
        ], {path.name for path in server.folder.iterdir()}


@pytest.mark.parametrize("sql", HARMFUL["sqlite"])
def test_a_harmful_statement_is_refused_and_sqlite_alone_would_stay_whole(shop, sql):
    sql = sql.replace("HERE", str(shop.parent))
    before = file_world(shop.parent)
    failure = asked(f"sqlite:///{shop}", sql=sql, timeout_s=0.6).failure
    assert failure is not None and failure.code in _codes(sql), failure
    assert file_world(shop.parent) == before
    told = told_without_guard(f"sqlite:///{shop}", sql)
    assert (told, file_world(shop.parent)) == (
        "[[1]]" if "/*!" in sql else "refused",
        before,
    )


@pytest.mark.parametrize("role", ["postgres", "analyst", "clerk"])
def test_harmful_statements_are_refused_and_postgres_alone_would_stay_whole(
    request, server, role
):
    before, address = server_world(server), address_of(role, request)
    for sql in HARMFUL["postgres"]:
        sql, values = (
            sql.replace("HERE", str(server.folder)),
            ["x"] if "$1" in sql else [],
        )
        failure = asked(address, sql=sql, parameters=values, timeout_s=0.6).failure
        assert failure is not None and failure.code in _codes(sql), (sql, failure)
        told = told_without_guard(address, sql, values)
        assert (
            "root:" not in told
            and str(server.folder) not in told
            and len(told) < 32 * 1024
        ), sql
    assert server_world(server) == before


def _codes(sql):
    ended = (
        {"QUERY_TOO_SLOW", "QUERY_FAILED"}
        if any(bomb in sql for bomb in BOMBS)
        else set()
    )
    return {"QUERY_REFUSED", *ended}


def told_without_guard(address, sql, values=()):
    """Return what an engine answers to a statement at which no guard has looked."""
    (tool, *_) = Databases({"shop": address})
    try:
        return str(tool._databases["shop"].query(Query(sql, values), SHORT).rows)
    except hr.ToolError:
        return "refused"


def test_no_function_that_postgres_calls_volatile_passes_the_guard(server):
    """What sqlglot types by itself is not looked up in our list; here it is held against a server's own catalogue."""
    harmless = {
        "random",
        "gen_random_uuid",
        "clock_timestamp",
        "timeofday",
        "statement_timestamp",
        "setseed",
    }
    with psycopg.connect(server.dsn) as connection:
        volatile = {
            name
            for (name,) in connection.execute(
                "SELECT proname FROM pg_proc WHERE provolatile = 'v'"
            )
        }
    assert len(volatile) > 200
    passed = set()
    for name in sorted(volatile - harmless):
        for call in (
            f"SELECT {name}()",
            f"SELECT {name}('x', 'y')",
            f"SELECT * FROM {name}('x')",
        ):
            try:
                check_query(call, [], "postgres")
            except hr.ToolError:
                continue
            passed.add(name)
    assert passed == set()


PIECES = (
    "canary()", "canary/**/()", '"canary"()', "'", "''", '"', "$1", "$", "$$", "$a$", "$1||", "--", "--\n", "/*", "*/",
    "E'", "e'", "U&'", "N'", "B'", "\\", "\\'", ",", "1", "(", ")", "::text", "||", "`", "[", "]", ";", " ", "\r",
    "\xa0", "{{", "{#", "q'[", "a", "_1", "&", " as ",
)  # fmt: skip
"""Of these, texts are made in which a call may be hidden from one reader of SQL and seen by another."""


def test_no_call_hides_in_a_text_that_the_guard_lets_pass(server):
    """Where sqlglot and Postgres read a text differently, a call could stand in what one of them takes for a string."""
    made = random.Random(2026)
    passed, called = 0, []
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE OR REPLACE FUNCTION canary() RETURNS text IMMUTABLE LANGUAGE plpgsql "
                           "AS $$ BEGIN RAISE EXCEPTION 'the canary was called'; END $$")  # fmt: skip
        for _ in range(20_000):
            text = (
                "SELECT 'x',"
                + "".join(made.choices(PIECES, k=made.randint(2, 9)))
                + made.choice(PIECES[:3])
            )
            values = ["x"] if "$1" in text else []
            try:
                query = check_query(text, values, "postgres")
            except hr.ToolError:
                continue
            passed += 1
            try:  # an immutable function is called while the query is planned
                psycopg.RawCursor(connection).execute(
                    f"EXPLAIN {query.text}".encode(), values
                )
            except psycopg.Error as error:
                called += (
                    [text] if "canary" in str(error) and "called" in str(error) else []
                )
        connection.execute("DROP FUNCTION canary()")
    assert (passed > 20, called) == (True, [])


@pytest.mark.parametrize("call", [
    "trim(name, city)", "ltrim(name, replace(city, 'a', 'b'))", "rtrim(name, $1)", "trim(both city from name)",
    f"trim(name, '{'x' * 101}')", "translate(name, city, 'x')", "json_patch(name, city)",
])  # fmt: skip
def test_a_function_that_multiplies_two_texts_is_refused(address, call):
    """`trim` of a megabyte by a megabyte runs for 20 minutes, through the timeout of Postgres too."""
    parameters = ["x"] if "$1" in call else []
    assert (
        asked(
            address, sql=f"SELECT {call} FROM users", parameters=parameters
        ).failure.code
        == "QUERY_REFUSED"
    )


def test_characters_that_are_written_out_are_taken_off(address):
    line = "char(10)" if address.startswith("sqlite") else "chr(10)"
    sql = f"SELECT trim('  a '), trim('-a-', '-'), ltrim('xxa', 'xy'), rtrim('a' || {line}, {line})"
    assert rows_of(address, sql) == [["a"] * 4]


@pytest.mark.parametrize("sql", [
    "SELECT " + "(" * 4900 + "1" + ")" * 4900,
    "SELECT " + "NOT " * 2400 + "1",
    "SELECT " + "CASE WHEN 1 THEN " * 450 + "1" + " END" * 450,
    "SELECT '" + "x" * 9000,
    "SELECT \x00 1",
    "SELECT 1 FROM " + ", ".join(f"(SELECT {n})" for n in range(200)),
    "SELECT 1" + " UNION SELECT 1" * 600,
    "WITH a0 AS (SELECT 1 AS x)" + "".join(f", a{n} AS (SELECT a.x FROM a{n - 1} a, a{n - 1} b)" for n in range(1, 30))
    + " SELECT * FROM a29",
    "WITH a AS (WITH b AS (WITH c AS (" + "SELECT 1 UNION ALL " * 90 + "SELECT 1) SELECT * FROM " + ", ".join("c" * 60)
    + ") SELECT * FROM " + ", ".join("b" * 60) + ") SELECT * FROM " + ", ".join("a" * 60),
])  # fmt: skip
def test_text_made_to_break_a_parser_or_a_planner_comes_to_an_end(address, sql):
    failure = asked(address, sql=sql, timeout_s=2.0).failure
    assert failure is None or failure.code in (
        "QUERY_REFUSED",
        "QUERY_FAILED",
        "QUERY_TOO_SLOW",
    )


def test_a_byte_order_mark_before_a_query_is_no_part_of_it():
    assert check_query("\ufeffSELECT 1 AS one", (), "sqlite").text == "SELECT 1 AS one"
