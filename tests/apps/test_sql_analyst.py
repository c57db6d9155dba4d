"""The SQL analyst: what it answered, and what its table was after all that was asked of it."""

import asyncio
import hashlib
import runpy
import sqlite3
from pathlib import Path

import pytest

from handrail.messages import ToolMessage

FILE = Path(__file__).parents[2] / "examples/apps/sql_analyst.py"


@pytest.fixture
def app():
    return runpy.run_path(str(FILE))


def results_of(run):
    return [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]


def test_the_answer_is_the_databases_and_twice_the_same(app, tmp_path, capsys):
    first, again = app["main"](["--rows", "20000"]), app["main"](["--rows", "20000"])
    app["make"](tmp_path / "shop.db", 20_000)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        city, spent, orders = connection.execute(
            app["BY_CITY"].replace("$1", "'2025-01-01'").replace("$2", "'2025-12-31'")
        ).fetchone()
    connection.close()
    assert (
        first.text
        == again.text
        == f"{city} spent most in 2025: {spent:,.2f} in {orders:,} orders."
    )
    assert first.status == "done"


def test_a_select_without_limit_was_a_page_and_the_next_one_followed_it(app, capsys):
    run = app["main"](["--rows", "20000"])
    first, second = [
        result.value
        for result in results_of(run)
        if result.name == "query" and result.ok
    ][:2]
    assert [first.rows[0][0], first.rows[-1][0], second.rows[0][0]] == [1, 100, 101]


def test_what_would_harm_was_refused_and_the_file_is_as_it_was(app, tmp_path, capsys):
    path = tmp_path / "shop.db"
    app["make"](path, 5_000)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    run = asyncio.run(
        app["analyse"](app["QUESTION"], app["MODEL"], f"sqlite:///{path}")
    )
    codes = [result.failure.code for result in results_of(run) if result.failure]
    assert codes[-3:] == ["QUERY_REFUSED", "QUERY_REFUSED", "QUERY_FAILED"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["shop.db"]
