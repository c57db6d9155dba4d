"""procrastinate's tables, in a schema of their own: how they are made, and brought up to the installed version.

Rule 1: everything lies in the schema `handrail_jobs`, and is named with it; functions look there by their own
        `search_path`, since they are called on the store's connections too.
Rule 2: procrastinate numbers its functions, and may drop old ones. The store calls one of ours, `handrail_enqueue`.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from handrail.errors import ConfigError, StoreUnavailable, describe_install
from handrail.stores.durable import DurableStore
from handrail.stores.sql_values import statements

SQL = statements("procrastinate.sql", package="handrail.dispatch")

SCHEMA = "handrail_jobs"
_LOCK = 0x68616E646A  # "handj": its holder makes the tables


def make_tables(store: DurableStore) -> None:
    """Make procrastinate's tables, or apply the migrations that came since, one process after the other.

    Each migration is committed by itself: Postgres does not use a new word of an enumeration before that.

    Raises:
        ConfigError: procrastinate is not installed, or the tables cannot be made.
        StoreUnavailable: The server does not answer.
    """
    try:
        import procrastinate  # noqa: F401
    except ImportError as missing:
        raise ConfigError(
            f"procrastinate is not installed; install it: {describe_install('workers')}"
        ) from missing
    import psycopg

    try:
        with psycopg.connect(store.conninfo, autocommit=True) as database:
            if _is_up_to_date(database):
                return
            database.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            database.execute(f"SET search_path = {SCHEMA}")
            _apply_migrations(database)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"no connection to {store.place}") from error
    except psycopg.Error as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the tables of procrastinate in {store.place} cannot be made: {what}"
        ) from error


_OURS = "handrail_1"
"""Our own indexes and our function, among the names of migrations."""


def _is_up_to_date(database: Any) -> bool:
    [table] = database.execute(
        f"SELECT to_regclass('{SCHEMA}.handrail_migrations')"
    ).fetchone()
    if table is None:
        return False
    applied = {name for (name,) in database.execute(SQL["applied"])}
    return {*_migrations(), _OURS} <= applied


def _apply_migrations(database: Any) -> None:
    migrations = _migrations()
    with database.transaction():
        database.execute(SQL["schema"])
        database.execute(SQL["applied_table"])
        applied = {name for (name,) in database.execute(SQL["applied"])}
        if not applied:
            whole = resources.files("procrastinate.sql").joinpath("schema.sql")
            database.execute(whole.read_text(encoding="utf-8"))
            for name in migrations:
                database.execute(SQL["was_applied"], (name,))
            applied = set(migrations)
    for name, text in migrations.items():
        if name not in applied:
            with database.transaction():
                database.execute(text)
                database.execute(SQL["was_applied"], (name,))
    with database.transaction():
        database.execute(SQL["indexes"])
        database.execute(SQL["enqueue"])
        for (function,) in database.execute(SQL["functions"]).fetchall():
            # the name is quoted by the server where it has to be
            database.execute(f"ALTER FUNCTION {function} SET search_path = {SCHEMA}")
        database.execute(SQL["was_applied"], (_OURS,))


def _migrations() -> dict[str, str]:
    """Return the migrations of the installed procrastinate, in order."""
    folder = resources.files("procrastinate.sql").joinpath("migrations")
    files = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".sql")),
        key=lambda each: each.name,
    )
    return {each.name: each.read_text(encoding="utf-8") for each in files}
