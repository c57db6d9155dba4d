"""`handrail config`: what is in force, where it comes from, and no secret."""

import json

import pytest

SECRET = "hunter2-hunter2"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(cli):
    result = cli("config", "--json")
    assert result.exit_code == 0, result.stderr
    settings = json.loads(result.stdout)["settings"]
    return {each["name"]: (each["value"], each["source"]) for each in settings}


def test_nothing_set_shows_the_defaults(cli, here):
    assert shown(cli) == {
        "store": ("memory:", "default"),
        "audit key file": ("none", "default"),
    }


@pytest.mark.parametrize(
    "where", ["environment", "handrail.toml", "pyproject.toml", "the current folder"]
)
def test_the_store_is_shown_with_where_it_is_named(cli, here, monkeypatch, where):
    place = "sqlite:///handrail.db"
    if where == "environment":
        monkeypatch.setenv("HANDRAIL_STORE", place)
        (here / "handrail.toml").write_text('[store]\nplace = "sqlite:///other.db"\n')
    elif where == "the current folder":
        (here / "handrail.db").touch()
    else:
        table = "store" if where == "handrail.toml" else "tool.handrail.store"
        (here / where).write_text(f'[{table}]\nplace = "{place}"\n')
    assert shown(cli)["store"] == (place, where)


def test_no_secret_is_shown_from_anywhere(cli, here, monkeypatch):
    for name in (
        "OPENAI_API_KEY",
        "TAVILY_API_KEY",
        "HANDRAIL_WEBHOOK_SECRET",
        "HANDRAIL_AUTH_SHOP",
    ):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HANDRAIL_STORE", f"postgresql://me:{SECRET}@db/shop")
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{SECRET}@proxy:3128")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    (here / "handrail.toml").write_text(
        f"""[mcp.servers.files]
command = "npx"
env = {{ ANY = "{SECRET}", TOKEN = "${{TOKEN}}" }}
[mcp.servers.far]
url = "https://me:{SECRET}@far.example/mcp"
headers = {{ Authorization = "Bearer {SECRET}", X-Key = "Bearer ${{TOKEN}}" }}
"""
    )
    for words in (["config"], ["config", "--json"]):
        result = cli(*words)
        assert result.exit_code == 0
        assert SECRET not in result.stdout + result.stderr
        assert "hunter2" not in result.stdout + result.stderr
    settings = shown(cli)
    assert settings["OPENAI_API_KEY"] == ("***", "environment")
    assert settings["OPENAI_BASE_URL"][0] == "http://localhost:8000/v1"
    assert settings["store"] == ("postgresql://me:***@db/shop", "environment")
    assert settings["mcp.servers.files.env.TOKEN"] == ("${TOKEN}", "handrail.toml")
    assert settings["mcp.servers.files.env.ANY"][0] == "***"
    advice = cli("config").stderr
    assert (
        "mcp.servers.far.headers.Authorization in handrail.toml is a secret" in advice
    )
    assert "mcp.servers.far.url in handrail.toml is a secret" in advice
    assert "TOKEN in" not in advice
    assert settings["mcp.servers.far.headers.X-Key"][0] == "Bearer ${TOKEN}"
    assert "X-Key in" not in advice


def test_letters_that_a_terminal_obeys_are_escaped(cli, here, monkeypatch):
    monkeypatch.setenv("HANDRAIL_MODEL", "openai:x\x1b[2Jy")
    assert "\x1b" not in cli("config").stdout
    assert "\x1b" not in cli("config", "--json").stdout
