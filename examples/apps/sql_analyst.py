"""SQL analyst: questions to a table of two million rows, which no answer can exhaust and no query can hurt.

Needs: handrail[sql]

    python examples/apps/sql_analyst.py                     # a SQLite file is made (about 100 MB), asked, and removed
    python examples/apps/sql_analyst.py --rows 10000
    python examples/apps/sql_analyst.py --model openai:NAME --database postgresql://analyst@db/shop "who buys most?"

Shown: `SELECT *` without LIMIT comes back as one page, at once, and the model pages on; a join without end is
interrupted; a DELETE and a function that reads files are refused; the arithmetic is done where the rows are.
"""

import argparse
import asyncio
import json
import resource
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import handrail as hr
from handrail.events import CallFinished
from handrail.testing import ScriptedModel, call
from handrail_toolbox.sql import Databases

QUESTION = "Which city spent most in 2025, and how much?"
SYSTEM = "You are an analyst. Look at the tables first, let the database do the arithmetic, and answer with the figure."
BY_CITY = """SELECT u.city, round(sum(o.amount), 2) AS spent, count(*) AS orders
FROM orders o JOIN users u ON u.id = o.user_id WHERE o.placed BETWEEN $1 AND $2 GROUP BY u.city ORDER BY spent DESC"""


def query(sql, **more):
    """Return a call of the query tool."""
    return call("query", database="shop", sql=sql, **more)


MODEL = ScriptedModel([
    call("list_tables", database="shop"),
    [call("describe_table", database="shop", table="orders"), query("SELECT * FROM orders")],
    lambda messages: query("SELECT * FROM orders", offset=messages[-1].result.value.next),
    query("SELECT count(*) FROM orders a, orders b WHERE a.amount < b.amount"),
    query("DELETE FROM orders"),
    query("SELECT readfile('/etc/passwd')"),
    query("SELECT sum(amout) FROM orders"),
    query(BY_CITY, parameters=["2025-01-01", "2025-12-31"]),
    lambda messages: "{} spent most in 2025: {:,.2f} in {:,} orders.".format(*messages[-1].result.value.rows[0]),
])  # fmt: skip


def make(path, rows):
    """Make the stand-in: orders of ten thousand users in five cities over two years, the same each time."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL)")
        cities = ("北京", "Oslo", "Nairobi", "Lima", "Paris")
        users = ((n, f"User {n}", cities[n * n % 7 % 5]) for n in range(10_000))
        connection.executemany("INSERT INTO users VALUES (?, ?, ?)", users)
        connection.execute(
            "CREATE TABLE orders(id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users(id), "
            "amount REAL NOT NULL, placed TEXT NOT NULL)"
        )
        connection.execute(
            "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "SELECT i, i * 7919 % 10000, (i * 31 % 20000) / 100.0, date('2024-01-01', (i % 730) || ' days') FROM n",
            [rows],
        )
    connection.close()


def show(event):
    """Print each call with what it took: time, what the model reads, memory of this process at its highest."""
    if isinstance(event, CallFinished):
        highest_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        text = event.result.text
        print(f"{event.call.name} {json.loads(event.call.arguments).get('sql', '')[:100]!r}")
        print(f"  {event.seconds * 1000:.0f} ms, {len(text)} characters, {highest_mb:.0f} MB at most")
        print(f"  {text[:150]}{'...' if len(text) > 150 else ''}")


async def analyse(question, model, address):
    """Ask, and return the run."""
    tools = Databases({"shop": address}, timeout_s=3)
    async with hr.Runtime(tools, observers=[show]) as runtime:
        return await runtime.run(question, model=model, system=SYSTEM, budget=hr.Budget(time_s=120, calls=30))


def main(arguments=None):
    """Run the app; return the run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--database", help="sqlite:///... or postgresql://..., with --model")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as place:
        address = options.database or f"sqlite:///{place}/shop.db"
        if not options.database:
            began = perf_counter()
            make(Path(place) / "shop.db", options.rows)
            print(f"{options.rows:,} orders made in {perf_counter() - began:.1f} s\n")
        run = asyncio.run(analyse(options.question, options.model, address))
    print(f"\n{run.text}")
    return run


if __name__ == "__main__":
    main()
