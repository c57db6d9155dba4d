"""What an import costs, and that what is imported late is sound."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.costs import ONE_CALL, import_cpu

import handrail

SRC = Path(handrail.__file__).parent
MODULES = sorted(
    ".".join(("handrail", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
    for path in SRC.rglob("*.py")
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name):
    import_module(name)


@pytest.mark.parametrize("name", handrail.__all__)
def test_every_name_of_the_package_is_where_it_is_said_to_be(name):
    assert getattr(handrail, name) is not None


def test_importing_stays_within_its_budget():
    """Relative, because machines differ; the goal is 2 x pydantic, measured were 3.5 in November 2026."""
    spent = import_cpu(
        {"pydantic": "import pydantic; pydantic.TypeAdapter, pydantic.BaseModel", "one call": ONE_CALL}, rounds=5
    )
    assert spent["one call"] <= 4.5 * spent["pydantic"]


def test_one_call_loads_nothing_that_it_does_not_need():
    heavy = ("httpx2", "opentelemetry", "rich", "click", "sqlite3", "starlette", "mcp", "multiprocessing.pool")
    program = f"import sys\n{ONE_CALL}\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in heavy if name in loaded] == []
