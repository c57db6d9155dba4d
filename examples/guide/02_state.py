"""A tool with state: `open` before the first call, `close` at the end; both may be async."""

import asyncio
import sqlite3

import handrail as hr


class FindBook(hr.BaseTool):
    """A connection that all calls share."""

    name, effect, timeout_s = "find_book", "read", 5

    def open(self) -> None:
        self.books = sqlite3.connect(":memory:", check_same_thread=False)  # runs in a thread of its own
        self.books.execute("CREATE TABLE book AS SELECT 'Emma' AS title, 1815 AS year")

    def run(self, title: str) -> dict[str, int]:
        """Look up in which year a book came out.

        Args:
            title: As printed on the cover.
        """
        return dict(self.books.execute("SELECT title, year FROM book WHERE title = ?", [title]).fetchall())

    def close(self) -> None:
        self.books.close()
        print("closed")


async def main() -> None:
    async with hr.Runtime([FindBook()]) as runtime:
        print((await runtime.call("find_book", {"title": "Emma"})).value)


asyncio.run(main())
