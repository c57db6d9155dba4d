"""The client that the official conformance suite starts: every listing and every call is handrail's.

python -m tests.handrail_mcp.conformance.client ADDRESS, with MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT set
"""

import asyncio
import json
import os
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import types
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

import handrail as hr
from handrail_mcp.questions import read_defaults

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
REDIRECT = AnyUrl("http://localhost:3000/callback")
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"


class Storage:
    """Tokens in memory."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """A person who agrees at once: opens the address, and reads where it leads."""

    async def open(self, url):
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url)
        location = answer.headers["location"]
        self.query = {
            name: values[0]
            for name, values in parse_qs(urlsplit(location).query).items()
        }

    async def read(self):
        names = ("code", "state", "iss")
        return AuthorizationCodeResult(
            **{name: self.query[name] for name in names if name in self.query}
        )


def sign_in(address):
    """Return what signs the requests of the scenarios about authorization."""
    storage = Storage()
    if CONTEXT.get("client_id"):
        secret = CONTEXT.get("client_secret")
        storage.client = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=secret,
            redirect_uris=[REDIRECT],
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
        )
    browser = Browser()
    return OAuthClientProvider(
        server_url=address,
        client_metadata=OAuthClientMetadata(
            client_name="handrail",
            redirect_uris=[REDIRECT],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=storage,
        redirect_handler=browser.open,
        callback_handler=browser.read,
        client_metadata_url=CLIENT_METADATA_URL,
    )


def agree(question):
    """Accept every form as it is proposed."""
    return hr.Approval(True, arguments=question.arguments)


async def sample(_context, _params):
    text = types.TextContent(type="text", text="Sampled.")
    return types.CreateMessageResult(role="assistant", content=text, model="scripted")


async def list_roots(_context):
    return types.ListRootsResult(roots=[])


def fill_in(schema):
    """Return arguments that fit the required properties of a schema."""
    values = {"string": "us-west1", "integer": 5, "number": 5, "boolean": True}
    properties = schema.get("properties", {})
    required = schema.get("required", properties)
    filled = {name: values.get(properties[name].get("type"), {}) for name in required}
    return {**filled, **read_defaults(schema)}


async def read_everything(connection):
    """Read what is not a tool, too: its requests have headers of their own."""
    capabilities = connection.capabilities
    if capabilities.resources is not None:
        listed = await connection.request(lambda session: session.list_resources())
        for each in listed.resources:
            await connection.request(
                lambda session, uri=each.uri: session.read_resource(uri)
            )
    if capabilities.prompts is not None:
        listed = await connection.request(lambda session: session.list_prompts())
        for each in listed.prompts:
            await connection.request(
                lambda session, name=each.name: session.get_prompt(name, {})
            )


async def main(address):
    auth = sign_in(address) if SCENARIO.startswith("auth/") else None
    tools = await hr.mcp.connect(
        address,
        name="suite",
        prefix="",
        timeout_s=60,
        connect_s=60,
        auth=auth,
        approver=agree,
        callbacks=hr.mcp.Callbacks(sampling=sample, roots=list_roots),
    )
    for problem in tools.problems:
        print(problem, file=sys.stderr)
    runtime = hr.Runtime(tools, policy=hr.Policy(ask_from=None))
    calls = CONTEXT.get("toolCalls") or [
        {"name": name, "arguments": fill_in(definition.input_schema)}
        for name, definition in tools.definitions_there.items()
    ]
    results = await asyncio.gather(
        *(runtime.call(each["name"], each["arguments"]) for each in calls)
    )
    for result in results:
        print(result, result.text[:300], file=sys.stderr)
    await read_everything(tools.connection)
    await runtime.close()
    await tools.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
