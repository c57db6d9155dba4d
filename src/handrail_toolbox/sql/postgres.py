"""A Postgres database, asked for reading only.

What holds is the engine: a read-only transaction, a statement timeout, and a role without rights to write. A superuser,
whom a read-only transaction would still let read files and end other sessions, is put into `pg_read_all_data` first.

Rule 1: the query alone is prepared before anything is put around it, so that the text within our brackets is one
        whole query and not the end of one and the beginning of another.
Rule 2: nothing goes over the simple protocol, which takes several statements at once.
Rule 3: a connection lives for one query, so that no setting and no lock of one reaches the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from handrail.calls import Page
from handrail.errors import ConfigError, ToolError, describe_install
from handrail.tools.paging import Gathering
from handrail_toolbox.sql.database import (
    PAGE_BYTES,
    Column,
    Share,
    Table,
    cell,
    cell_size,
    query_failure,
    too_slow,
    unavailable,
    words,
)
from handrail_toolbox.sql.guard import Query

try:
    import psycopg
    from psycopg import errors, pq
    from psycopg.types.numeric import Float8, Int4, Int8
except ImportError as error:
    raise ConfigError(
        f"a Postgres database needs psycopg: {describe_install('postgres,sql')}"
    ) from error

_CONNECT_S = 5
_LOOK_S = 0.2
_TABLES = (Path(__file__).parent / "postgres.sql").read_text(encoding="utf-8")

# bool, int8, int2, int4, oid, float4, float8 and uuid come as they are. All else comes as text that the server cuts
# before it is sent, since one value may have a gigabyte; times too, since Postgres knows some (`infinity`) that Python
# lacks.
_AS_THEY_ARE = {16, 20, 21, 23, 26, 700, 701, 2950}

_UNKNOWN = re.compile(
    r'(?:column|relation|function) "?(?:\w+\.)*([^".\s(]+)"?.* does not exist'
)
_FORBIDDEN = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)


class PostgresDatabase:
    """See `Database`.

    Args:
        name: What the model calls it.
        address: Anything libpq connects to.
    """

    dialect = "postgres"

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        try:
            psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.ProgrammingError:
            raise ConfigError(
                f"the address of the database {name!r} cannot be read by libpq"
            ) from None
        self._address = address

    def tables(self, share: Share) -> Sequence[Table]:
        """See `Database.tables`."""
        columns_by_table: dict[tuple[str, str], list[Column]] = {}
        with self._open(share) as connection:
            for table, kind, *column in connection.execute(
                _TABLES, prepare=True
            ).fetchall():
                columns_by_table.setdefault((table, kind), []).append(Column(*column))
        return [
            Table(table, kind, columns)
            for (table, kind), columns in columns_by_table.items()
        ]

    def query(self, query: Query, share: Share) -> Page:
        """See `Database.query`."""
        with self._open(share) as connection:
            values = [_parameter(value) for value in query.parameters]
            columns_described = self._column_types(
                connection, query.text, [oid for oid, _ in values]
            )
            columns = [name for name, _ in columns_described]
            most = cell_size(len(columns))
            count = len(values)
            aliases = [f"c{place}" for place in range(len(columns))]
            expressions = [
                name if oid in _AS_THEY_ARE else f"left({name}::text, {most + 1})"
                for name, (_, oid) in zip(aliases, columns_described, strict=True)
            ]
            text = f"SELECT {', '.join(expressions)} FROM (\n{query.text}\n) AS q({', '.join(aliases)})"
            text += f" LIMIT ${count + 1} OFFSET ${count + 2}"
            cursor = psycopg.RawCursor(connection)
            cursor.execute(
                text.encode(),
                [*(value for _, value in values), share.limit + 1, share.offset],
            )
            page = Gathering(share.offset, 0, PAGE_BYTES, share.limit)
            for row in cursor:
                if not page.take([cell(value, most) for value in row]):
                    break
            return page.page(columns)

    def _column_types(
        self, connection: psycopg.Connection[Any], text: str, oids: Sequence[int]
    ) -> Sequence[tuple[str, int]]:
        """Let the server compile the query as it is; return its columns: name, oid of the type."""
        line = connection.pgconn
        for result in (
            line.prepare(b"", text.encode(), oids),
            line.describe_prepared(b""),
        ):
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result, encoding="utf-8")
        columns = [
            ((result.fname(n) or b"").decode(), result.ftype(n))
            for n in range(result.nfields)
        ]
        if not columns:
            raise query_failure("the query has no columns", "", list)
        return columns

    @contextmanager
    def _open(self, share: Share) -> Iterator[psycopg.Connection[Any]]:
        """Begin a read-only transaction on a connection of its own, and word what the server says."""
        try:
            with psycopg.connect(
                self._address, connect_timeout=_CONNECT_S, client_encoding="utf8"
            ) as connection:
                connection.read_only = True
                superuser = connection.info.parameter_status("is_superuser") == "on"
                milliseconds = max(1, round(share.time_s * 1000))
                connection.execute(
                    f"SET LOCAL statement_timeout = {milliseconds}".encode()
                )
                # as the guard reads texts
                connection.execute("SET LOCAL standard_conforming_strings = on")
                if superuser:
                    connection.execute("SET LOCAL ROLE pg_read_all_data")
                try:
                    with _cancelling_when(share.given_up, connection):
                        yield connection
                finally:
                    connection.rollback()
        except psycopg.Error as error:
            raise self._failure(error, share) from None

    def _failure(self, error: psycopg.Error, share: Share) -> ToolError:
        message = ". ".join(
            filter(None, (error.diag.message_primary, error.diag.message_hint))
        )
        if isinstance(error, errors.QueryCanceled):
            return too_slow(share.time_s)
        if isinstance(error, _FORBIDDEN):
            return ToolError(
                "QUERY_REFUSED",
                f"The query was not run. The database says: {words(message)}.",
                suggestion="Read what `list_tables` names, and change nothing.",
            )
        # a value that cannot be sent, such as a NUL
        if isinstance(error, psycopg.DataError) and not error.sqlstate:
            return query_failure(str(error), "", list)
        # Without a SQLSTATE nothing came from the server; these classes are its own trouble, not the query's.
        if not error.sqlstate or error.sqlstate[:2] in (
            "08",
            "28",
            "3D",
            "53",
            "57",
            "58",
        ):
            return unavailable(self.name)
        unknown = _UNKNOWN.search(error.diag.message_primary or "")
        return query_failure(
            message, unknown[1] if unknown else "", lambda: self.tables(share)
        )


@contextmanager
def _cancelling_when(
    given_up: Callable[[], bool], connection: psycopg.Connection[Any]
) -> Iterator[None]:
    """Ask the server to stop as soon as nobody waits for the answer any more, long before its own timeout."""
    done = Event()

    def watch() -> None:
        while not done.wait(_LOOK_S):
            if given_up():
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=_CONNECT_S)
                return

    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _parameter(value: Any) -> tuple[int, Any]:
    """Return the oid under which a value is sent, 0 where the server is to find out, and the value to send.

    Python's own integers are sent as the smallest type that holds them, and a query is compiled before its values come.
    """
    if isinstance(value, bool):
        return 16, value
    if isinstance(value, int) and abs(value) < 2**63:
        if abs(value) < 2**31:
            return (23, Int4(value))
        return (20, Int8(value))
    if isinstance(value, float):
        return (701, Float8(value))
    return (0, value if value is None else str(value))
