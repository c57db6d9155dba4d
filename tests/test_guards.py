"""Guards: types that refuse, before a tool runs, what a model could smuggle into a parameter."""

import asyncio
import sqlite3
from typing import Annotated

import jsonschema
import pytest

import handrail as hr
from handrail import guards

TYPES = {
    "Identifier": guards.Identifier,
    "Slug": guards.Slug,
    "SqlIdentifier": guards.SqlIdentifier,
    "KubernetesName": guards.KubernetesName,
    "KubernetesObject": guards.KubernetesObject,
    "HostName": guards.HostName,
    "EmailAddress": guards.EmailAddress,
    "OneLine": guards.OneLine,
    "RelativePath": guards.RelativePath,
    "HttpUrl": guards.HttpUrl,
    "url_at": Annotated[str, guards.url_at("example.com", "docs.example-2.org")],
}


def tool_of(guard):
    def show(value: str) -> str:
        """Show a value as the tool gets it."""
        return value

    show.__annotations__["value"] = TYPES[guard]
    return hr.FunctionTool(show, effect="read", blocking=False)


def given(guard, value):
    """What the tool gets, or the failure's code."""

    async def asked():
        async with hr.Runtime([tool_of(guard)]) as runtime:
            result = await runtime.call("show", {"value": value})
            return result.value if result.ok else result.failure.code

    return asyncio.run(asked())


@pytest.mark.parametrize(("guard", "value"), [
    ("Identifier", "U1"), ("Identifier", "A-10.42_x"), ("Slug", "monthly-report"), ("SqlIdentifier", "order_items"),
    ("KubernetesName", "api-gateway"), ("KubernetesObject", "api-7d9f.v2"), ("HostName", "db1.example.com"),
    ("HostName", "10.0.0.1"), ("EmailAddress", "wang.li+x@mail.example.com"), ("OneLine", "第一行, line one"),
    ("RelativePath", "报告/五月.md"), ("RelativePath", ".env"), ("HttpUrl", "http://example.com:8080/a?b=c#d"),
    ("url_at", "https://example.com"), ("url_at", "https://docs.example-2.org/a/b?c"),
])  # fmt: skip
def test_what_fits_reaches_the_tool_as_it_is(guard, value):
    assert given(guard, value) == value


@pytest.mark.parametrize(("guard", "value"), [
    ("Identifier", "U1; DROP TABLE users"), ("Identifier", "U1' OR '1'='1"), ("Identifier", "U1\n"),
    ("Identifier", "../U1"), ("Identifier", "-rf"), ("Identifier", ""), ("Identifier", "U" * 65), ("Identifier", "Ｕ1"),
    ("Slug", "Monthly Report"), ("Slug", "-x"), ("SqlIdentifier", "a;b"), ("SqlIdentifier", 'a"b'),
    ("SqlIdentifier", "a b"), ("KubernetesName", "--all"), ("KubernetesName", "a.b"), ("KubernetesName", "a" * 64),
    ("KubernetesObject", "pod/../secrets"), ("KubernetesObject", "-o=yaml"), ("HostName", "a..b"),
    ("HostName", "a.b:22"), ("HostName", "-a"), ("EmailAddress", "a@b.c\nBcc: x@y.z"), ("EmailAddress", "a@b.c,d@e.f"),
    ("EmailAddress", "Wang <a@b.c>"), ("EmailAddress", "a@b"), ("EmailAddress", '"a b"@c.d'),
    ("OneLine", "a\r\nBcc: x@y.z"), ("OneLine", "a\u2028b"), ("OneLine", "a\x00"), ("OneLine", "a\x85b"),
    ("RelativePath", "../secret"), ("RelativePath", "a/../../secret"), ("RelativePath", "/etc/passwd"),
    ("RelativePath", "C:\\x"), ("RelativePath", "a\\..\\b"), ("RelativePath", "~root/x"), ("RelativePath", "a\x00b"),
    ("HttpUrl", "file:///etc/passwd"), ("HttpUrl", "https://user:pw@example.com/"), ("HttpUrl", "https://a b/"),
    ("HttpUrl", "https://example.com:99999/"), ("HttpUrl", "https://example.com\\@evil.com/"),
    ("HttpUrl", "https://[::1]/"), ("url_at", "https://example.com.evil.com/"), ("url_at", "http://example.com/"),
    ("url_at", "https://example.com@evil.com/"), ("url_at", "https://evil.com/?https://example.com/"),
    ("url_at", "https://example.com:8443/"), ("url_at", "https://exampleXcom/"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_tool(guard, value):
    assert given(guard, value) == "INVALID_ARGUMENTS"


def test_a_path_is_given_in_one_way_of_writing():
    assert given("RelativePath", "a//./b/") == "a/b"


@pytest.mark.parametrize("guard", TYPES)
def test_a_guard_is_described_by_a_pattern_that_other_validators_read_alike(guard):
    schema = tool_of(guard).parameters
    described = schema["properties"]["value"]
    assert described.keys() >= {"pattern", "maxLength", "examples"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"value": "a\r\nb; DROP TABLE"}, schema)


def test_what_the_author_says_of_a_parameter_is_what_the_model_reads():
    @hr.tool(effect="read", blocking=False)
    def greet(address: guards.EmailAddress) -> str:
        """Greet somebody.

        Args:
            address: Whom to greet.
        """
        return address

    assert greet.parameters["properties"]["address"]["description"] == "Whom to greet."


def test_an_injected_statement_never_reaches_the_database():
    """Even where the tool is written as badly as can be, with the value pasted into its SQL."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.executescript("CREATE TABLE users (id TEXT); INSERT INTO users VALUES ('U1')")
    seen = []
    db.set_trace_callback(seen.append)

    @hr.tool(effect="read")
    def count_users(user_id: guards.Identifier) -> int:
        """Count the users of one number."""
        db.executescript(f"SELECT count(*) FROM users WHERE id = '{user_id}'")
        return 1

    async def asked():
        async with hr.Runtime([count_users]) as runtime:
            return await runtime.call(
                "count_users", {"user_id": "U1'; DROP TABLE users; --"}
            )

    assert asyncio.run(asked()).failure.code == "INVALID_ARGUMENTS"
    assert seen == []
    assert db.execute("SELECT id FROM users").fetchall() == [("U1",)]


@pytest.mark.parametrize("hosts", [(), ("",), ("a b",), ("example.com/",)])
def test_a_list_of_hosts_that_are_none_is_refused_when_the_type_is_made(hosts):
    with pytest.raises(hr.ToolDefinitionError, match=r"such as 'example\.com'"):
        guards.url_at(*hosts)
