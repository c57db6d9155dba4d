"""What many tests start from, and the markers that say what a test needs."""

import signal
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import servers_permitted
from tests.support.drivers import KINDS, Driver
from tests.support.effort import IS_LONG, beyond_each_value, is_volume

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
EXAMPLES_IN_EACH_RUN = 50

# `make test-fast`
QUICK_EXAMPLES = 10
QUICK_MARKERS = "not (slow or server or corpus or proof)"
settings.register_profile("quick", deadline=None, max_examples=QUICK_EXAMPLES)


@pytest.fixture(autouse=True)
def import_path():
    """Take back where a test looked for modules: `examples/agents.py` would be imported for the package `agents`."""
    path = [*sys.path]
    yield
    sys.path[:] = path


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=KINDS)
def drive(request):
    """Open a driver over some tools: each test that asks for it runs on asyncio and in the calling thread."""
    opened = []

    def open_one(tools, **how) -> Driver:
        opened.append(Driver(request.param, tools, how))
        return opened[-1]

    yield open_one
    for driver in opened:
        driver.close()


TESTS = Path(__file__).parent

MARKED_BY_PATH = {
    "corpus": ["*corpus/*"],
    "proof": [
        "journeys/*", "handrail_server/test_served.py", "handrail_frameworks/test_killed_conversations.py",
        "testing/test_crashes.py", "apps/test_ops_killed.py",
    ],
    "slow": [
        "docs/test_examples.py", "docs/test_pages.py", "docs/test_site.py", "apps/*", "cli/*", "handrail_*/commands/*",
        "*sandboxes/*", "workers/test_processes.py", "workers/test_sandboxed.py", "core/test_planning.py",
        "tools/test_materialize.py", "schemas/test_schema_suite.py", "dialects/wires/*", "typing/*",
        "handrail_mcp/test_server*.py", "handrail_openmodels/prompts/*", "handrail_openmodels/test_completion.py",
        "handrail_toolbox/test_run_python.py", "handrail_toolbox/test_sql.py", "handrail_toolbox/test_kubernetes.py",
    ],
}  # fmt: skip
"""What whole files need. A single test is marked where it stands."""

# where a module can start one; elsewhere it is HTTP
SERVER_FIXTURES = {"server", "dsn", "postgres", "_server"}
SERVER_PARAMETERS = {"postgres", "analyst", "clerk"}


def pytest_ignore_collect(collection_path, config):
    """Do not even import a file that `make test-fast` deselects as a whole."""
    if config.getoption("-m") != QUICK_MARKERS:
        return None
    return bool(markers_by_path(collection_path)) or None


def pytest_collection_modifyitems(config, items):
    """Mark each test by its path and by what it asks for, and leave to `make test-all` what is only volume."""
    for item in items:
        if config.getoption("--hypothesis-profile") == "quick":
            bound_examples(item, QUICK_EXAMPLES)
        elif not IS_LONG:
            bound_examples(item, EXAMPLES_IN_EACH_RUN)
        for marker in markers_by_path(item.path):
            item.add_marker(marker)
        if needs_server(item):
            item.add_marker("server")
    for item in beyond_each_value(items):
        item.add_marker("volume")
    if not IS_LONG:
        config.hook.pytest_deselected(items=[*filter(is_volume, items)])
        items[:] = [item for item in items if not is_volume(item)]


def markers_by_path(path: Path) -> list[str]:
    """Return the markers that a whole file has."""
    if not path.is_file() or not path.is_relative_to(TESTS):
        return []
    name = path.relative_to(TESTS).as_posix()
    return [
        marker
        for marker, patterns in MARKED_BY_PATH.items()
        if any(fnmatch(name, pattern) for pattern in patterns)
    ]


def bound_examples(item, examples: int) -> None:
    """Bound the examples of a property, also of one that has a number of its own, which no profile changes."""
    function = getattr(
        getattr(item, "obj", None), "__func__", getattr(item, "obj", None)
    )
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > examples:
        function._hypothesis_internal_use_settings = settings(
            own, max_examples=examples
        )


def needs_server(item) -> bool:
    """Whether a test has a Postgres: by a fixture, or as one of the engines over which it is repeated."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    is_named = any(
        isinstance(each, str) and each in SERVER_PARAMETERS for each in parameters
    )
    can_start = hasattr(getattr(item, "module", None), "started")
    return is_named or (
        can_start and not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Let only a test that is marked `server` start one."""
    servers_permitted.now = item.get_closest_marker("server") is not None
