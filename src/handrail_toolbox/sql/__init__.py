"""Questions to databases, in SQL, for reading only: SQLite and Postgres.

    from handrail_toolbox.sql import Databases

    runtime = hr.Runtime([*Databases({"shop": "sqlite:///shop.db", "warehouse": "postgresql://analyst@db/warehouse"})])

The model gets `list_tables`, `describe_table` and `query`, and calls a database by its name. Its address and password
it never learns. Reading only is held twice, by the engine and by the text: see `sqlite`, `postgres` and `guard`.

Not prevented: what a function or view in the database does with the rights of its owner. Give the tools a role of their
own (`?options=-crole%3Danalyst`) that may read what a model may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from handrail.calls import Page
from handrail.context import Context
from handrail.errors import ConfigError, Json, ToolError
from handrail.parsing import names
from handrail.tools.settings import Limits
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset
from handrail_toolbox.sql.database import Database, Share, Table
from handrail_toolbox.sql.guard import check_query
from handrail_toolbox.sql.sqlite import SqliteDatabase

DEFAULT_TIMEOUT_S = 10.0
MOST_TEXT = 10_000
MOST_ROWS = 500

_EARLIER_S = 0.5


class Databases(Toolset):
    """Tools over named databases.

    Args:
        addresses: Name -> `sqlite:///file.db` (four slashes for an absolute path) or `postgresql://user@host/name`.
            A password is safer in libpq's own places: `PGPASSFILE`, `PGSERVICEFILE`.
        timeout_s: How long one query may take.

    Raises:
        ConfigError: An address cannot be used, or what it needs is not installed.
    """

    def __init__(
        self, addresses: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        if not addresses:
            raise ConfigError(
                'name at least one database: Databases({"shop": "sqlite:///shop.db"})'
            )
        databases = {
            name: _database(name, address) for name, address in addresses.items()
        }
        super().__init__(
            kind(databases, timeout_s)
            for kind in (_ListTables, _DescribeTable, _RunQuery)
        )


def _database(name: str, address: str) -> Database:
    scheme = urlsplit(address).scheme
    if scheme == "sqlite":
        path = address.removeprefix("sqlite:")
        if not path.startswith("///"):
            raise ConfigError(
                f"the database {name!r} names no file: write sqlite:///shop.db, or four slashes"
            )
        return SqliteDatabase(name, path[3:])
    if scheme in ("postgresql", "postgres"):
        from handrail_toolbox.sql.postgres import PostgresDatabase

        return PostgresDatabase(name, address)
    # The address may hold a password: it is not shown.
    raise ConfigError(
        f"the database {name!r} is neither at sqlite:///... nor at postgresql://..."
    )


class _OnDatabases(BaseTool):
    """What the tools have in common: a parameter `database` that takes the declared names."""

    trace_type = "datastore"
    effect = "read"
    limits = Limits(max_concurrency=4)

    def __init__(self, databases: Mapping[str, Database], timeout_s: float) -> None:
        self._databases = databases
        self.timeout_s = timeout_s
        super().__init__()
        schema = deepcopy(self.signature.schema)
        schema["properties"]["database"]["enum"] = list(databases)
        self._describe(schema)


class _ListTables(_OnDatabases):
    name = "list_tables"
    aliases = ("tables", "schema", "database", "数据库", "表", "有哪些表", "数据表")

    def run(self, context: Context[Any], database: str) -> list[dict[str, Json]]:
        """List the tables and views of a database with the names of their columns.

        Use it first, before `query`, when you do not know the tables yet. Do not use it to read rows.

        Args:
            database: Which database.
        """
        tables = self._databases[database].tables(
            Share(_early(context), context.cancelled.is_set)
        )
        return [
            {
                "table": table.name,
                "kind": table.kind,
                "columns": [column.name for column in table.columns],
            }
            for table in tables
        ]


class _DescribeTable(_OnDatabases):
    name = "describe_table"
    aliases = ("columns", "schema", "字段", "表结构", "列", "描述表")

    def run(self, context: Context[Any], database: str, table: str) -> Table:
        """Describe one table or view: the type of each column, the primary key, and what it refers to.

        Use it before you join tables or compare dates and amounts. Do not use it to read rows.

        Args:
            database: Which database.
            table: Name of the table as `list_tables` gives it, such as "orders".
        """
        share = Share(_early(context), context.cancelled.is_set)
        tables = {each.name: each for each in self._databases[database].tables(share)}
        wanted = next((name for name in tables if name.lower() == table.lower()), None)
        if wanted is None:
            near = [f"`{name}`" for name in names.nearest(table, tables)]
            if near:
                meant = f"Did you mean {' or '.join(near)}?"
            else:
                meant = "Call `list_tables` for their names."
            raise ToolError(
                "TABLE_NOT_FOUND",
                f"There is no table {table[:60]!r} in `{database}`.",
                suggestion=meant,
            )
        return tables[wanted]


class _RunQuery(_OnDatabases):
    name = "query"
    aliases = ("sql", "select", "查询", "统计", "查数据", "分析数据", "报表")

    def run(
        self,
        context: Context[Any],
        database: str,
        sql: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)],
        parameters: Annotated[
            Sequence[str | int | float | bool | None], Field(max_length=100)
        ] = (),
        limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 100,
        offset: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0,
    ) -> Page:
        """Run one SQL query that reads, and return its rows page by page.

        Use it to look something up or to count, sum and compare. Let the database do the arithmetic (COUNT, SUM, GROUP
        BY) instead of reading rows one by one. It cannot change anything; do not try INSERT, UPDATE, DELETE or DDL.

        Args:
            database: Which database.
            sql: One SELECT, or WITH ... SELECT, in the database's own SQL. Values of the user go into `parameters`,
                with $1, $2 in their places: "SELECT name FROM users WHERE city = $1".
            parameters: The values for $1, $2, ... in order, such as ["北京"].
            limit: How many rows to return at most.
            offset: How many rows to leave out: `next` of the page before. Only an ORDER BY makes pages reliable.

        Returns:
            `columns`, `rows` as lists in their order, `has_more`, and `next`: the `offset` of the next page, or null.
        """
        there = self._databases[database]
        checked_query = check_query(sql, parameters, there.dialect)
        return there.query(
            checked_query,
            Share(_early(context), context.cancelled.is_set, offset, limit),
        )


def _early(context: Context[Any]) -> float:
    """Return when the engine ends a query, in seconds: before the runtime does, so that the model reads why."""
    left_s = context.remaining_s()
    return max(left_s - _EARLIER_S, left_s / 2)


__all__ = ["Database", "Databases"]
