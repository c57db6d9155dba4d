"""Types that let through what a parameter is for, and nothing else."""

import asyncio
import sqlite3
from typing import Annotated

import handrail as hr
from handrail import guards

DB = sqlite3.connect(":memory:", check_same_thread=False)
DB.execute("CREATE TABLE users AS SELECT 'U1' AS id, 'Li' AS name")


@hr.tool(effect="read", timeout_s=5)
def get_user(user_id: guards.Identifier) -> dict[str, str]:
    """Look a user up by number."""
    return dict(DB.execute("SELECT id, name FROM users WHERE id = ?", [user_id]).fetchall())


@hr.tool(effect="read", timeout_s=5)
def open_page(page: Annotated[str, guards.url_at("docs.example.com")], save_as: guards.RelativePath) -> str:
    """Open a page of the documentation."""
    return f"{page} as {save_as}"


async def main() -> None:
    async with hr.Runtime([get_user, open_page]) as runtime:
        for name, arguments in [
            ("get_user", {"user_id": "U1"}),
            ("get_user", {"user_id": "U1; DROP TABLE users"}),
            ("open_page", {"page": "https://docs.example.com/a", "save_as": "notes//./a.md"}),
            ("open_page", {"page": "https://docs.example.com@evil.example/", "save_as": "../a.md"}),
        ]:
            result = await runtime.call(name, arguments)
            print(result.value if result.ok else f"{result.failure.code}: {result.failure.message}")
    DB.close()


asyncio.run(main())
