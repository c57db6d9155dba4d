"""A Postgres database, asked for reading only.

What holds is the engine: a read-only transaction, a statement timeout, and a role without rights to write. A superuser,
whom a read-only transaction would still let read files and end other sessions, is put into `pg_read_all_data` first.

Rule 1: the query alone is prepared before anything is put around it, so that what stands within our brackets is one
        whole query and not the end of one and the beginning of another.
Rule 2: nothing goes over the simple protocol, which takes several statements at once.
Rule 3: a connection lives for one query, so that no setting and no lock of one reaches the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from handrail.calls import Page
from handrail.errors import ConfigError, ToolError
from handrail.pages import Gathering
from handrail.toolbox.sql.database import (
    MOST_SHOWN,
    PAGE_BYTES,
    Column,
    Share,
    Table,
    away,
    cell,
    cell_size,
    misunderstood,
    too_slow,
)
from handrail.toolbox.sql.guard import Query

try:
    import psycopg
    from psycopg import errors, pq
except ImportError as error:
    raise ConfigError("a Postgres database needs psycopg: pip install 'handrail[postgres,sql]'") from error

_CONNECT_S = 5
_TABLES = (Path(__file__).parent / "postgres.sql").read_text(encoding="utf-8")

# Values of these types are short, whatever they are. All others are cut by the server, before they are sent: one value
# may have a gigabyte. bool, "char", int8, int2, int4, oid, float4, float8, date, time, timestamp, timestamptz,
# interval, timetz, uuid.
_SHORT = {16, 18, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 2950}

_UNKNOWN = re.compile(r'(?:column|relation|function) "?(?:\w+\.)*([^".\s(]+)"?.* does not exist')
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
            raise ConfigError(f"the address of the database {name!r} cannot be read by libpq") from None
        self._address = address

    def tables(self, share: Share) -> Sequence[Table]:
        """See `Database.tables`."""
        found: dict[tuple[str, str], list[Column]] = {}
        with self._open(share) as connection:
            for table, kind, *column in connection.execute(_TABLES, prepare=True).fetchall():
                found.setdefault((table, kind), []).append(Column(*column))
        return [Table(table, kind, columns) for (table, kind), columns in found.items()]

    def query(self, query: Query, share: Share) -> Page:
        """See `Database.query`."""
        with self._open(share) as connection:
            described = self._described(connection, query.text, share)
            columns = [name for name, _ in described]
            most, count = cell_size(len(columns)), len(query.parameters)
            named = [f"c{place}" for place in range(len(columns))]
            shown = [
                name if oid in _SHORT else f"left({name}::text, {most + 1})"
                for name, (_, oid) in zip(named, described, strict=True)
            ]
            text = f"SELECT {', '.join(shown)} FROM (\n{query.text}\n) AS q({', '.join(named)})"
            text += f" LIMIT ${count + 1} OFFSET ${count + 2}"
            cursor = psycopg.RawCursor(connection)
            cursor.execute(text.encode(), [*query.parameters, share.limit + 1, share.offset])
            gathered = Gathering(share.offset, 0, PAGE_BYTES, share.limit)
            for row in cursor:
                if not gathered.take([cell(value, most) for value in row]):
                    break
            return gathered.page(columns)

    def _described(self, connection: psycopg.Connection[Any], text: str, share: Share) -> Sequence[tuple[str, int]]:
        """Let the server compile the query as it stands; return its columns: name, oid of the type."""
        line = connection.pgconn
        for result in (line.prepare(b"", text.encode()), line.describe_prepared(b"")):
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result, encoding="utf-8")
        columns = [((result.fname(n) or b"").decode(), result.ftype(n)) for n in range(result.nfields)]
        if not columns:
            raise misunderstood("the query has no columns", "", lambda: self.tables(share))
        return columns

    @contextmanager
    def _open(self, share: Share) -> Iterator[psycopg.Connection[Any]]:
        """Begin a read-only transaction on a connection of its own, and word what the server says."""
        try:
            with psycopg.connect(self._address, connect_timeout=_CONNECT_S, client_encoding="utf8") as connection:
                connection.read_only = True
                superuser = connection.info.parameter_status("is_superuser") == "on"
                milliseconds = max(1, round(share.time_s * 1000))
                connection.execute(f"SET LOCAL statement_timeout = {milliseconds}".encode())
                connection.execute("SET LOCAL standard_conforming_strings = on")  # as the guard reads texts
                if superuser:
                    connection.execute("SET LOCAL ROLE pg_read_all_data")
                try:
                    yield connection
                finally:
                    connection.rollback()
        except psycopg.Error as error:
            raise self._worded(error, share) from None

    def _worded(self, error: psycopg.Error, share: Share) -> ToolError:
        said = ". ".join(filter(None, (error.diag.message_primary, error.diag.message_hint)))
        if isinstance(error, errors.QueryCanceled):
            return too_slow(share.time_s)
        if isinstance(error, _FORBIDDEN):
            return ToolError(
                "QUERY_REFUSED",
                f"The query was not run. The database says: {said[:MOST_SHOWN]}.",
                suggestion="Read what `list_tables` names, and change nothing.",
            )
        # Without a SQLSTATE nothing came from the server; classes 08, 53 and 57 are its own trouble, not the query's.
        if not error.sqlstate or error.sqlstate[:2] in ("08", "28", "53", "57", "3D"):
            return away(self.name)
        unknown = _UNKNOWN.search(error.diag.message_primary or "")
        return misunderstood(said, unknown[1] if unknown else "", lambda: self.tables(share))
