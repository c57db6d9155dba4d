"""What tests of the command line share: a runner, and files with tools."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from handrail.cli import main
from handrail.testing import ScriptedServer
from tests.cli.keeping import ASKING, PAID, Deployment

SHOP = '''
import handrail as hr

@hr.tool(effect="read")
def get_order(order_id: str) -> dict:
    """Look an order up."""
    if order_id == "down":
        raise ConnectionRefusedError
    return {"order_id": order_id, "paid": 49}

@hr.tool(effect="write")
def note(order_id: str) -> str:
    """Add a note to an order."""
    return f"noted {order_id}"

@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order."""
    return f"deleted {order_id}"

@hr.tool(effect="write", permission="admin")
def drop_all() -> str:
    """Drop everything."""
    return "dropped"

@hr.tool(effect="write", timeout_s=0.05)
async def pay(order_id: str) -> str:
    """Pay, at a provider that does not answer in time."""
    import asyncio
    await asyncio.sleep(30)

def helper(order_id: str) -> str:
    """No tool: it is not decorated."""
    return order_id
'''

Cli: TypeAlias = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `handrail` in this process, with an environment that has no key and no model."""
    for name in (
        "HANDRAIL_MODEL",
        "HANDRAIL_STORE",
        "HANDRAIL_AUDIT_KEY_FILE",
        "HANDRAIL_DEBUG",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "FORCE_COLOR",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(
            main, list(words), input=stdin, prog_name="handrail"
        )
        if result.exception is not None and not isinstance(
            result.exception, SystemExit
        ):
            raise result.exception  # a traceback, which no test of ours wants
        return result

    return run


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A file with tools of every kind."""
    file = tmp_path / "shop.py"
    file.write_text(SHOP, encoding="utf-8")
    return str(file)


@pytest.fixture
def deployed(
    cli: Cli, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Deployment]]:
    """Make a deployment with a store in a file, whose model follows a script."""
    with ExitStack() as servers:

        def make(script: Sequence[Any] = ASKING, tools: str = shop) -> Deployment:
            server = servers.enter_context(ScriptedServer(script))
            made = Deployment(cli, f"sqlite:{tmp_path}/kept.db", tools, server)
            monkeypatch.setenv("HANDRAIL_STORE", made.place)
            monkeypatch.setenv("HANDRAIL_MODEL", server.model)
            return made

        yield make


@pytest.fixture
def weather(tmp_path: Path) -> str:
    """A file with the tool of `tests.support.weather`."""
    file = tmp_path / "weather_tools.py"
    file.write_text("from tests.support.weather import TOOLS\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def call_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the example's dialect, known as an installed package makes it known."""
    package = tmp_path / "call_lines-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: call-lines\nVersion: 1.0\n"
    )
    (package / "entry_points.txt").write_text(
        "[handrail.dialects]\ncall-lines = call_lines:DIALECT\n"
    )
    for folder in (tmp_path, Path(__file__).parents[2] / "examples"):
        monkeypatch.syspath_prepend(str(folder))
    return "call-lines"


@pytest.fixture
def talkative(tmp_path: Path) -> str:
    """A file with a tool that prints."""
    file = tmp_path / "talkative.py"
    file.write_text(
        '''
import handrail as hr
print("imported")

@hr.tool(effect="read")
def look() -> str:
    """Look."""
    print("looking")
    return "seen"
''',
        encoding="utf-8",
    )
    return str(file)


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    """A file with a tool that the caller must complete."""
    file = tmp_path / "tenants.py"
    file.write_text(
        '''
from typing import Annotated
import handrail as hr

@hr.tool(effect="read")
def orders_of(day: int, tenant: Annotated[str, hr.Injected]) -> str:
    """List the orders of a day."""
    return f"{tenant} on {day}"
''',
        encoding="utf-8",
    )
    return str(file)


@pytest.fixture
def asks_about_notes(tmp_path: Path) -> str:
    """A file with a policy that asks a person about the tool `note` of `shop`, whose risk is medium."""
    file = tmp_path / "asking.toml"
    file.write_text('[[rules]]\ntool = "note"\nthen = "ask"\n', encoding="utf-8")
    return str(file)


@pytest.fixture
def paid(deployed):
    """A deployment with a run that has ended well."""
    made = deployed(PAID)
    made.run, _ = made.begin()
    return made
