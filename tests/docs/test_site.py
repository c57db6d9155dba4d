"""The site: every page has its place in it, every public name is in the reference, and it builds strictly."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import handrail as hr
from docs import build
from handrail.cli import list_commands, options
from handrail.cli import settings as cli_settings
from handrail.errors import Code
from handrail.linting import Settings
from handrail.models.providers import PROVIDERS
from handrail.tools.settings import GROUPS
from handrail.tools.tool import BaseTool
from handrail_mcp import server_settings
from tests.support.effort import volume

SRC = Path(hr.__file__).parents[1]
CONFIGURATION = (build.DOCS / "reference/configuration.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def staged():
    build.stage()
    return build.STAGED


def test_every_page_stands_once_in_the_navigation(staged):
    navigation = build.CONFIGURATION.read_text(encoding="utf-8").partition("\nnav:\n")[
        2
    ]
    listed = re.findall(r"[\w./-]+\.md\b", navigation)
    assert sorted(listed) == sorted(
        page.relative_to(staged).as_posix() for page in staged.rglob("*.md")
    )


def test_every_public_name_is_in_the_reference():
    assert [name for name in build.PUBLIC if not build.page_of(name)] == [], (
        "add it to REFERENCE in docs/build.py"
    )


def test_every_name_of_the_reference_has_something_to_say():
    assert [
        name for name in build.PUBLIC if not build.first_sentence(getattr(hr, name))
    ] == []


def test_every_setting_of_a_tool_is_in_its_table_with_a_meaning():
    for declaring, names in [
        (BaseTool, BaseTool._DECLARABLE),
        *((group, group.usual.keys()) for group in GROUPS.values()),
    ]:
        settings = {
            name: meaning for name, _, _, meaning in build.settings_of(declaring)
        }
        assert names <= settings.keys()
        assert [name for name, meaning in settings.items() if not meaning.strip()] == []


@pytest.mark.parametrize("name", list_commands())
def test_every_command_is_on_the_page_of_the_command_line(name):
    assert f"\n## handrail {name}\n" in build.command_line()


def test_every_error_code_is_in_the_reference():
    members = (SRC / "handrail/errors.py").read_text(encoding="utf-8")
    assert [code for code in Code if f'{code} = "{code}"' not in members] == []
    assert build.page_of("Code") == "errors"


def test_every_key_of_the_settings_is_on_the_page_of_the_configuration():
    keys = {
        "store": options._STORE_SETTINGS,
        "lint": Settings.__struct_fields__,
        "mcp": ("pins",),
        "otel": cli_settings._OTEL,
        "retention": ("runs", "results", "audit", "writes", "tools"),
        "schedule": (),
    }
    assert set(keys) == set(cli_settings.TABLES)
    rows = [
        f"| `[{table}]` | `{key}` |" for table, names in keys.items() for key in names
    ]
    assert [row for row in rows if row not in CONFIGURATION] == []
    of_servers = "".join(
        row for row in CONFIGURATION.splitlines() if row.startswith("| `[mcp.servers.")
    )
    names = server_settings.ServerSettings.__struct_fields__
    assert [key for key in names if f"`{key}`" not in of_servers] == ["name", "tools"]
    assert "`[mcp.servers.NAME.tools.TOOL]`" in of_servers
    assert "`[schedule.NAME]`" in CONFIGURATION


def test_every_environment_variable_is_on_the_page_of_the_configuration():
    text = "".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    ours = set(re.findall(r"HANDRAIL_[A-Z_]*[A-Z]\b", text)) - {
        "HANDRAIL_COMPLETE"
    }  # click's own, in completion scripts
    ours = {re.sub("(?<=HANDRAIL_AUTH).*", "_NAME", name) for name in ours}
    of_providers = {
        each
        for one in PROVIDERS.values()
        for each in (one.key_variable, one.other_key_variable)
        if each
    }
    assert (
        sorted(name for name in ours | of_providers if f"`{name}`" not in CONFIGURATION)
        == []
    )


def test_the_table_of_providers_is_made_from_them():
    shown = build.PROVIDER_REGION.search(CONFIGURATION)[0]
    assert shown == build.provider_table(), (
        "run: python -m tests.docs.test_pages --write"
    )


def test_a_link_out_of_the_pages_leads_to_the_repository(tmp_path):
    assert (
        f"]({build.repository()}/blob/main/examples/apps/README.md)"
        in build.with_links_of_the_site(build.DOCS / "README.md")
    )


@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None,
    reason="the extra `docs` is not installed",
)
@volume  # `make docs` builds it as well
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere():
    built = subprocess.run(
        [sys.executable, "-m", "docs.build"],
        cwd=build.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((build.ROOT / "build/site").rglob("*.html"))
    assert len(pages) > 60
    loaded = re.compile(
        r"<(?:script|img|iframe|link rel=.(?:stylesheet|preconnect)).[^>]*(?:src|href)=.(?:https?:)?//[^ >]*"
    )
    assert [
        found
        for page in pages
        for found in loaded.findall(page.read_text(encoding="utf-8"))
    ] == []
