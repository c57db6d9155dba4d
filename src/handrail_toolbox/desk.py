"""A support desk: users and their plans, tickets, promo codes and orders, in SQLite or Postgres.

    from handrail_toolbox.desk import SupportDesk

    desk = SupportDesk("sqlite:///desk.db")
    runtime = hr.Runtime(desk, store="sqlite:///handrail.db")

It is of use as it is, for demonstrations and small desks, and it is the model for tools over a database of your own:
how each write declares what it touches, what names it, and how to find out whether it happened.

Rule 1: a write leaves its key in the same transaction as its effect. Called again with the key, it gives the same
        answer and does nothing: that is what `replay="key"` promises.
Rule 2: what a transaction did not do for certain is a `NoEffect`; what was lost at its commit is a broken connection.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from handrail.context import Context
from handrail.effects import Found, NotFound
from handrail.errors import (
    Code,
    ConfigError,
    Json,
    NoEffect,
    ToolError,
    describe_install,
)
from handrail.guards import Identifier
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Sends, Write
from handrail.tools.toolset import Toolset

Plan: TypeAlias = Literal["free", "pro", "team"]
Row: TypeAlias = dict[str, Json]
Execute: TypeAlias = Callable[..., Sequence[Row]]
"""Runs one statement with `?` for values; returns its rows, or one row `{"changed": n}` of what gives none."""

TIMEOUT_S = 10.0
_COMMIT_LOST = "the commit was not confirmed; it may have taken place"
_SCHEMA = (Path(__file__).parent / "desk.sql").read_text(encoding="utf-8")

_UserId = Annotated[Identifier, Field(description='The user, such as "U1".')]


class SupportDesk(Toolset):
    """The tools of one desk.

    Args:
        address: `sqlite:///desk.db` or `postgresql://...`. Its tables are made when it is first used.

    Raises:
        ConfigError: The address cannot be used, or what it needs is not installed.
    """

    def __init__(self, address: str) -> None:
        self.desk = desk = Desk(address)
        super().__init__([*_make_reads(desk), *_make_writes(desk)])


class Desk:
    """What the tools do, and a few things that people do without them."""

    def __init__(self, address: str) -> None:
        self._home = _home(address)
        self._made = False

    # ------------------------------------------------------------------ reading

    def get_user(self, context: Context[Any], user_id: _UserId) -> Row:
        """Look a user up: name, plan, and credit in cents.

        Use it before you change anything of a user. Do not use it to list several users.
        """
        with self._begin(context.remaining_s()) as execute:
            return _user(execute, user_id, ToolError)

    def list_tickets(
        self,
        context: Context[Any],
        user_id: _UserId,
        status: Literal["open", "closed"] | None = None,
    ) -> Iterator[Row]:
        """List the tickets of a user, the oldest first.

        Use it to find out what was reported before, or whether a ticket exists already.

        Args:
            status: Only tickets in this state; all of them by default.
        """
        with self._begin(context.remaining_s()) as execute:
            rows = execute(
                "SELECT ticket_id, subject, priority, status FROM desk_tickets "
                "WHERE user_id = ? AND (? = '' OR status = ?) ORDER BY ticket_id",
                user_id,
                status or "",
                status or "",
            )
        yield from rows

    def list_orders(self, context: Context[Any], user_id: _UserId) -> Iterator[Row]:
        """List the orders of a user with what was bought, the total in cents, and the state.

        Use it to find an order of which the user does not know the number. Do not use it to look for users.
        """
        with self._begin(context.remaining_s()) as execute:
            rows = execute(
                "SELECT order_id, item, quantity, total_cents, status FROM desk_orders WHERE user_id = ? "
                "ORDER BY order_id",
                user_id,
            )
        yield from rows

    # ------------------------------------------------------------------ writing

    def create_ticket(
        self,
        context: Context[Any],
        user_id: _UserId,
        subject: Annotated[str, Field(min_length=3, max_length=120)],
        body: Annotated[str, Field(max_length=4_000)] = "",
        priority: Literal["low", "normal", "high"] = "normal",
    ) -> Row:
        """Open a ticket for a user, so that a person looks into something.

        Use it once for each trouble that you cannot end yourself. Do not use it again to add to a ticket that is open.

        Args:
            subject: What is wrong, in one line, such as "Login fails with code 500".
            body: What the person needs to know: what was tried, what was seen.
            priority: "high" only when the user cannot work at all.
        """
        with self._act(_key(context), context.remaining_s()) as (
            execute,
            before,
            answer,
        ):
            if before is not None:
                return before
            _user(execute, user_id, NoEffect)
            ticket = {
                "ticket_id": _name("T", _key(context)),
                "user_id": user_id,
                "subject": subject,
                "priority": priority,
            }
            execute(
                "INSERT INTO desk_tickets(ticket_id, user_id, subject, priority, body) VALUES (?, ?, ?, ?, ?)",
                *ticket.values(),
                body,
            )
            return answer({**ticket, "status": "open"})

    def close_ticket(self, context: Context[Any], ticket_id: Identifier) -> Row:
        """Close a ticket whose trouble has ended.

        Use it when the user has confirmed that it is solved. Do not use it to hide a ticket that nobody answers.

        Args:
            ticket_id: The ticket, such as "T1A2B3C4D5E6".
        """
        with self._act(_key(context), context.remaining_s()) as (
            execute,
            before,
            answer,
        ):
            if before is not None:
                return before
            changed = execute(
                "UPDATE desk_tickets SET status = 'closed' WHERE ticket_id = ?",
                ticket_id,
            )
            if not _has_changed(changed):
                raise _none(
                    "ticket",
                    ticket_id,
                    "Call `list_tickets` for the numbers of a user's tickets.",
                )
            return answer({"ticket_id": ticket_id, "status": "closed"})

    def update_plan(self, context: Context[Any], user_id: _UserId, plan: Plan) -> Row:
        """Put a user on another plan, from now on.

        Use it when the user has asked for that plan. Do not use it for discounts: those are promo codes.

        Args:
            plan: The new plan.

        Returns:
            The new plan, and `before`: the one until now.
        """
        with self._act(_key(context), context.remaining_s()) as (
            execute,
            before,
            answer,
        ):
            if before is not None:
                return before
            old = _user(execute, user_id, NoEffect)["plan"]
            execute("UPDATE desk_users SET plan = ? WHERE user_id = ?", plan, user_id)
            return answer({"user_id": user_id, "plan": plan, "before": old})

    def redeem_promo(
        self, context: Context[Any], user_id: _UserId, code: Identifier
    ) -> Row:
        """Redeem a promo code for a user, who gets its credit, once.

        Use it when the user names a code. Do not try codes that nobody has named.

        Args:
            code: The code, such as "SPRING-26".
        """
        with self._begin(context.remaining_s()) as execute:
            credit = _only(
                execute("SELECT credit_cents FROM desk_promos WHERE code = ?", code)
            )
            if credit is None:
                raise _none("promo code", code, "Ask the user for the exact code.")
            _user(execute, user_id, NoEffect)
            redeemed_now = execute(
                "INSERT INTO desk_redemptions(user_id, code) VALUES (?, ?) ON CONFLICT DO NOTHING",
                user_id,
                code,
            )
            if not _has_changed(redeemed_now):
                raise NoEffect(
                    "REDEEMED",
                    f"{user_id} has redeemed {code!r} before.",
                    suggestion="Tell the user so.",
                )
            used = execute(
                "UPDATE desk_promos SET uses_left = uses_left - 1 WHERE code = ? AND uses_left > 0",
                code,
            )
            if not _has_changed(used):
                raise NoEffect(
                    "USED_UP",
                    f"The promo code {code!r} is used up.",
                    suggestion="Tell the user so.",
                )
            execute(
                "UPDATE desk_users SET credit_cents = credit_cents + ? WHERE user_id = ?",
                credit["credit_cents"],
                user_id,
            )
            return {
                "user_id": user_id,
                "code": code,
                "credit_cents": credit["credit_cents"],
            }

    def verify_redemption(
        self, arguments: Row, context: Context[Any]
    ) -> Found | NotFound:
        """Say whether a user has redeemed a code: what `verify` asks after a lost answer."""
        user_id = arguments["user_id"]
        code = arguments["code"]
        with self._begin(context.remaining_s()) as execute:
            rows = execute(
                "SELECT credit_cents FROM desk_redemptions r JOIN desk_promos p ON p.code = r.code "
                "WHERE r.user_id = ? AND r.code = ?",
                user_id,
                code,
            )
        if rows:
            return Found({"user_id": user_id, "code": code, **rows[0]})
        return NotFound()

    def place_order(
        self,
        context: Context[Any],
        user_id: _UserId,
        item: Identifier,
        quantity: Annotated[int, Field(ge=1, le=1_000)] = 1,
    ) -> Row:
        """Order an item for a user from stock. More than ten at once need a person's approval.

        Use it when the user has said what and how many. Do not use it to find out a price.

        Args:
            item: The item, such as "charger-usb-c".
            quantity: How many pieces.
        """
        with self._act(_key(context), context.remaining_s()) as (
            execute,
            before,
            answer,
        ):
            if before is not None:
                return before
            _user(execute, user_id, NoEffect)
            stocked = _only(
                execute(
                    "SELECT price_cents, stock FROM desk_items WHERE item = ?", item
                )
            )
            if stocked is None:
                raise _none("item", item, "Ask the user for the item's exact name.")
            reserved = execute(
                "UPDATE desk_items SET stock = stock - ? WHERE item = ? AND stock >= ?",
                quantity,
                item,
                quantity,
            )
            if not _has_changed(reserved):
                text = f"{item!r} has {stocked['stock']} pieces left, and {quantity} were asked for."
                raise NoEffect(
                    "OUT_OF_STOCK", text, suggestion="Offer the user what is left."
                )
            order = {
                "order_id": _name("O", _key(context)),
                "user_id": user_id,
                "item": item,
                "quantity": quantity,
            }
            order["total_cents"] = quantity * stocked["price_cents"]
            execute(
                "INSERT INTO desk_orders(order_id, user_id, item, quantity, total_cents) VALUES (?, ?, ?, ?, ?)",
                *order.values(),
            )
            return answer({**order, "status": "placed"})

    # ------------------------------------------------------------------ taking back, by a person's decision

    def withdraw_ticket(self, *, result: Row, **_: Json) -> None:
        """Close the ticket that a call has opened."""
        with self._begin(TIMEOUT_S) as execute:
            execute(
                "UPDATE desk_tickets SET status = 'closed' WHERE ticket_id = ?",
                result["ticket_id"],
            )

    def cancel_order(self, *, result: Row, **_: Json) -> None:
        """Cancel the order that a call has placed, and put its pieces back into stock; once."""
        with self._begin(TIMEOUT_S) as execute:
            cancelled = execute(
                "UPDATE desk_orders SET status = 'cancelled' WHERE order_id = ? AND status = 'placed'",
                result["order_id"],
            )
            if _has_changed(cancelled):
                execute(
                    "UPDATE desk_items SET stock = stock + ? WHERE item = ?",
                    result["quantity"],
                    result["item"],
                )

    def fill(
        self, table: Literal["users", "promos", "items"], rows: Sequence[Row]
    ) -> None:
        """Add users, promo codes or items; those that are there already are left as they are."""
        with self._begin(TIMEOUT_S) as execute:
            for row in rows:
                places = ", ".join("?" * len(row))
                names = ", ".join(row)
                execute(
                    f"INSERT INTO desk_{table}({names}) VALUES ({places}) ON CONFLICT DO NOTHING",
                    *row.values(),
                )

    def rows(
        self,
        table: Literal["users", "tickets", "promos", "redemptions", "items", "orders"],
    ) -> Sequence[Row]:
        """Return everything in a table, in the order of its key: what a test looks at."""
        with self._begin(TIMEOUT_S) as execute:
            return execute(f"SELECT * FROM desk_{table} ORDER BY 1, 2")

    # ------------------------------------------------------------------ transactions

    @contextmanager
    def _begin(self, time_s: float) -> Iterator[Execute]:
        """Open a transaction of at most `time_s`, committed at the end and rolled back when anything is raised."""
        if not self._made:
            with self._home.begin(time_s) as execute:
                execute(self._home.alone)
                for statement in _SCHEMA.split(";\n"):
                    execute(statement)
            self._made = True
        with self._home.begin(time_s) as execute:
            yield execute

    @contextmanager
    def _act(
        self, key: str, time_s: float
    ) -> Iterator[tuple[Execute, Row | None, Callable[[Row], Row]]]:
        """Open the transaction of one write: how to execute, what it answered before if it was done, how to answer."""
        with self._begin(time_s) as execute:
            # Whoever comes second waits here until the first has committed, or has been rolled back.
            fresh = execute(
                "INSERT INTO desk_acts(key) VALUES (?) ON CONFLICT DO NOTHING", key
            )

            def answer(row: Row) -> Row:
                execute(
                    "UPDATE desk_acts SET answer = ? WHERE key = ?",
                    json.dumps(row, ensure_ascii=False),
                    key,
                )
                return row

            if _has_changed(fresh):
                before = None
            else:
                before = _only(
                    execute("SELECT answer FROM desk_acts WHERE key = ?", key)
                )
            yield execute, before and json.loads(before["answer"]), answer


def _has_changed(rows: Sequence[Row]) -> bool:
    return bool(rows[0]["changed"])


def _only(rows: Sequence[Row]) -> Row | None:
    return rows[0] if rows else None


def _user(execute: Execute, user_id: str, kind: type[ToolError]) -> Row:
    user = _only(
        execute(
            "SELECT user_id, name, plan, credit_cents FROM desk_users WHERE user_id = ?",
            user_id,
        )
    )
    if user is None:
        raise kind(
            "USER_NOT_FOUND",
            f"There is no user {user_id!r}.",
            suggestion="Ask the user for the right number.",
        )
    return user


def _none(what: str, name: str, suggestion: str) -> NoEffect:
    return NoEffect(
        f"{what.upper().replace(' ', '_')}_NOT_FOUND",
        f"There is no {what} {name!r}.",
        suggestion=suggestion,
    )


def _key(context: Context[Any]) -> str:
    return f"{context.tool}:{context.idempotency_key}"


def _name(letter: str, key: str) -> str:
    """Return the number of what a write makes, by its key: short enough for a model to copy, 48 bits."""
    return letter + sha256(key.encode()).hexdigest()[:12].upper()


# ---------------------------------------------------------------------- SQLite or Postgres


class _Home(Protocol):
    alone: str
    """A statement after which nobody else makes the tables."""

    @contextmanager
    def begin(self, time_s: float) -> Iterator[Execute]:
        """Open a transaction."""
        ...


def _home(address: str) -> _Home:
    scheme = urlsplit(address).scheme
    if (
        scheme == "sqlite"
        and address.startswith("sqlite:///")
        and len(address) > len("sqlite:///")
    ):
        return _Sqlite(Path(address.removeprefix("sqlite:///")).resolve())
    if scheme in ("postgresql", "postgres"):
        return _Postgres(address)
    raise ConfigError(
        "a support desk is at sqlite:///desk.db (four slashes for an absolute path) or at postgresql://..."
    )


class _Sqlite:
    alone = "SELECT 1"  # an open transaction excludes all others

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def begin(self, time_s: float) -> Iterator[Execute]:
        """See `_Home.begin`. One writer at a time; another waits for it, at most so long."""
        try:
            connection = sqlite3.connect(
                self._path, timeout=time_s, isolation_level=None
            )
        except sqlite3.Error:
            raise _unavailable() from None
        connection.row_factory = sqlite3.Row

        def execute(text: str, *values: Any) -> Sequence[Row]:
            cursor = connection.execute(text, values)
            if cursor.description:
                return [dict(row) for row in cursor]
            return [{"changed": cursor.rowcount}]

        with closing(connection):  # which rolls back what is not committed
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield execute
            except sqlite3.OperationalError:  # locked, full, read-only
                raise _unavailable() from None
            try:
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise _unavailable() from None
                raise ConnectionError(_COMMIT_LOST) from None


class _Postgres:
    # `IF NOT EXISTS` fails when two do it at once
    alone = "SELECT pg_advisory_xact_lock(7306077)"

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ConfigError(
                f"a desk on Postgres needs psycopg: {describe_install('postgres')}"
            ) from error
        self._psycopg = psycopg
        self._address = address

    @contextmanager
    def begin(self, time_s: float) -> Iterator[Execute]:
        """See `_Home.begin`. The server ends what takes longer."""
        psycopg = self._psycopg
        try:
            connection = psycopg.connect(
                self._address, connect_timeout=max(2, round(time_s))
            )
        except psycopg.Error:
            raise _unavailable() from None

        def execute(text: str, *values: Any) -> Sequence[Row]:
            with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
                cursor.execute(text.replace("?", "%s").encode(), values)
                rows: Sequence[Row] = [{"changed": cursor.rowcount}]
                if cursor.description:
                    rows = cursor.fetchall()
                return rows

        with connection:
            try:
                execute(f"SET LOCAL statement_timeout = {max(1, round(time_s * 1000))}")
                yield execute
            except psycopg.OperationalError:  # nothing is committed yet
                raise _unavailable() from None
            except psycopg.DataError as error:
                # a NUL in a text, say: not sent, or refused
                raise NoEffect(
                    Code.INVALID_ARGUMENTS,
                    "The database cannot keep one of these values; nothing was done.",
                    suggestion="Leave characters out that cannot be seen.",
                ) from error
            try:
                connection.commit()
            except psycopg.OperationalError:
                raise ConnectionError(_COMMIT_LOST) from None


def _unavailable() -> ToolError:
    return NoEffect(
        Code.UNAVAILABLE,
        "The support desk does not answer just now; nothing was done.",
        suggestion="Try again a little later.",
        retryable=True,
    )


USER = "user:{user_id}"
"""What most tools touch: calls about one user run one after another."""


def _read(run: Callable[..., Any], *aliases: str, **declared: Any) -> FunctionTool:
    return FunctionTool(
        run, effect="read", timeout_s=TIMEOUT_S, aliases=aliases, **declared
    )


def _write(run: Callable[..., Any], *aliases: str, **declared: Any) -> FunctionTool:
    return FunctionTool(
        run,
        effect="write",
        sends=Sends(trust="untrusted"),  # it answers with what customers wrote
        timeout_s=TIMEOUT_S,
        aliases=aliases,
        **declared,
    )


def _make_reads(desk: Desk) -> list[FunctionTool]:
    return [
        _read(desk.get_user, "customer", "用户", "客户", "查用户", resource=USER),
        _read(
            desk.list_tickets, "tickets", "工单", "工单列表", "查工单", resource=USER
        ),
        _read(desk.list_orders, "orders", "订单", "查订单", resource=USER),
    ]


def _make_writes(desk: Desk) -> list[FunctionTool]:
    return [
        _write(
            desk.create_ticket,
            "open ticket",
            "建工单",
            "提交工单",
            replay="key",
            resource=USER,
            write=Write(compensate=desk.withdraw_ticket),
        ),
        _write(
            desk.close_ticket,
            "resolve",
            "关闭工单",
            replay="key",
            resource="ticket:{ticket_id}",
        ),
        _write(
            desk.update_plan,
            "upgrade",
            "downgrade",
            "套餐",
            "升级",
            replay="key",
            resource=USER,
        ),
        # A user redeems a code once, in whatever run: the key says so, and a row shows whether it happened.
        _write(
            desk.redeem_promo,
            "coupon",
            "优惠码",
            "兑换",
            key="promo:{user_id}:{code}",
            verify=desk.verify_redemption,
            resource=[USER, "promo:{code}"],
        ),
        _write(
            desk.place_order,
            "buy",
            "下单",
            "订购",
            replay="key",
            resource=[USER, "item:{item}"],
            approve="quantity > 10",
            write=Write(compensate=desk.cancel_order),
        ),
    ]
