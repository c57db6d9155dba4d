"""Forwards what is no tool to the servers behind a gateway: requests for resources, prompts and completions.

A resource keeps its address. Only the server that listed it, or whose template matches, is asked for it. If two servers
list one address, the first in the configuration serves it, and the collision is logged. Prompts are renamed as tools
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mcp import types
from mcp.client.session import ClientSession
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from pydantic import TypeAdapter

from handrail import logs
from handrail_mcp.connection import FetchPage
from handrail_mcp.delivery import ServerError
from handrail_mcp.gateways.routes import Context, Routes
from handrail_mcp.names import make_name


class Forwarding:
    """Passes requests on to the servers behind a gateway.

    Args:
        routes: By the name of the server, in order.
        prefixes: Of the names of its prompts, by the name of the server.
    """

    def __init__(self, routes: dict[str, Routes], prefixes: dict[str, str]) -> None:
        self._routes = routes
        self._prefixes = prefixes
        self._home_of_resource: dict[str, str] = {}
        self._templates: dict[str, list[UriTemplate]] = {}
        self._home_of_prompt: dict[str, tuple[str, str]] = {}

    def install(self, server: Server[Any]) -> None:
        """Answer the requests of a server's clients."""
        paginated = types.PaginatedRequestParams
        for method, params, handler in (
            ("resources/list", paginated, self._list_resources),
            ("resources/templates/list", paginated, self._list_templates),
            ("resources/read", types.ReadResourceRequestParams, self._read),
            ("resources/subscribe", types.SubscribeRequestParams, self._subscribe),
            (
                "resources/unsubscribe",
                types.UnsubscribeRequestParams,
                self._unsubscribe,
            ),
            ("prompts/list", paginated, self._list_prompts),
            ("prompts/get", types.GetPromptRequestParams, self._get_prompt),
            ("completion/complete", types.CompleteRequestParams, self._complete),
        ):
            server.add_request_handler(method, params, handler)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ lists

    async def _list_resources(self, context: Context, _: Any) -> Any:
        listed: list[types.Resource] = []
        homes: dict[str, str] = {}
        for name in self._routes:
            for page in await self._pages(context, name, "resources", _list_resources):
                for each in page.resources:
                    if homes.setdefault(str(each.uri), name) == name:
                        listed.append(each)
                    else:
                        logs.log.warning(
                            "the MCP server %r lists the resource %s, which is that of %r",
                            name, each.uri, homes[str(each.uri)],
                        )  # fmt: skip
        self._home_of_resource = homes
        return types.ListResourcesResult(resources=listed)

    async def _list_templates(self, context: Context, _: Any) -> Any:
        listed: list[types.ResourceTemplate] = []
        for name in self._routes:
            pages = await self._pages(context, name, "resources", _list_templates)
            own = [each for page in pages for each in page.resource_templates]
            self._templates[name] = _parse_templates(own)
            listed += own
        return types.ListResourceTemplatesResult(resource_templates=listed)

    async def _list_prompts(self, context: Context, _: Any) -> Any:
        listed: list[types.Prompt] = []
        homes: dict[str, tuple[str, str]] = {}
        for name in self._routes:
            for page in await self._pages(context, name, "prompts", _list_prompts):
                for each in page.prompts:
                    here = make_name(self._prefixes[name], each.name)
                    if here not in homes:
                        homes[here] = (name, each.name)
                        listed.append(each.model_copy(update={"name": here}))
        self._home_of_prompt = homes
        return types.ListPromptsResult(prompts=listed)

    async def _pages(
        self, context: Context, name: str, capability: str, fetch: FetchPage
    ) -> Sequence[Any]:
        """Return all pages of a list of one server; none where it has no such list, or does not answer."""
        pages: list[Any] = []
        try:
            async with self._routes[name].serve(context) as connection:
                if getattr(connection.capabilities, capability) is None:
                    return pages
                async for page in connection.read_pages(fetch):
                    pages.append(page)
        except (ServerError, MCPError) as error:
            logs.log.warning("%s of the MCP server %r: %s", capability, name, error)
        return pages

    # ------------------------------------------------------------------ single ones

    async def _read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> Any:
        name = await self._find_resource(context, str(params.uri))
        request = types.ReadResourceRequest(params=params)
        answer = _union(types.ReadResourceResult)
        return await self._send(context, name, request, answer)

    async def _subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> Any:
        name = await self._find_resource(context, str(params.uri))
        request = types.SubscribeRequest(params=params)
        answer = await self._send(context, name, request, types.EmptyResult)
        self._routes[name].subscribe(context, str(params.uri))
        return answer

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> Any:
        name = await self._find_resource(context, str(params.uri))
        if not self._routes[name].unsubscribe(context, str(params.uri)):
            # another session on this connection is still subscribed
            return types.EmptyResult()
        request = types.UnsubscribeRequest(params=params)
        return await self._send(context, name, request, types.EmptyResult)

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> Any:
        name, own = await self._find_prompt(context, params.name)
        request = types.GetPromptRequest(params=params.model_copy(update={"name": own}))
        answer = _union(types.GetPromptResult)
        return await self._send(context, name, request, answer)

    async def _complete(
        self, context: Context, params: types.CompleteRequestParams
    ) -> Any:
        reference = params.ref
        if isinstance(reference, types.PromptReference):
            name, own = await self._find_prompt(context, reference.name)
            reference = reference.model_copy(update={"name": own})
        else:
            name = await self._find_resource(context, str(reference.uri))
        request = types.CompleteRequest(
            params=params.model_copy(update={"ref": reference})
        )
        return await self._send(context, name, request, types.CompleteResult)

    async def _send(
        self, context: Context, name: str, request: Any, answer: Any
    ) -> Any:
        # What the client says of itself and of its request is no business of the server's.
        request.params = request.params.model_copy(update={"meta": None})
        try:
            async with self._routes[name].serve(context) as connection:
                return await connection.request(
                    lambda session: session.send_request(request, answer)
                )
        except ServerError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error

    # ------------------------------------------------------------------ whose it is

    async def _find_resource(self, context: Context, uri: str) -> str:
        """Return the server that has a resource, or whose template has this address or is it.

        Raises:
            MCPError: None of them.
        """
        if len(self._routes) == 1:
            return next(iter(self._routes))
        for look_again in (True, False):
            if home := self._home_of_resource.get(uri):
                return home
            for name, templates in self._templates.items():
                if any(_fits(each, uri) for each in templates):
                    return name
            if look_again:
                await self._list_resources(context, None)
                await self._list_templates(context, None)
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri[:200]}")

    async def _find_prompt(self, context: Context, here: str) -> tuple[str, str]:
        if here not in self._home_of_prompt:
            await self._list_prompts(context, None)
        if here not in self._home_of_prompt:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {here[:200]}")
        return self._home_of_prompt[here]


def _parse_templates(listed: Sequence[types.ResourceTemplate]) -> list[UriTemplate]:
    templates = []
    for each in listed:
        with suppress(InvalidUriTemplate):  # it is listed all the same
            templates.append(UriTemplate.parse(each.uri_template))
    return templates


def _union(kind: Any) -> TypeAdapter[Any]:
    """Return a reader of results of this kind, and of requests for input that come in place of one."""
    return TypeAdapter(kind | types.InputRequiredResult)


def _fits(template: UriTemplate, uri: str) -> bool:
    return str(template) == uri or template.match(uri) is not None


async def _list_resources(session: ClientSession, params: Any) -> Any:
    return await session.list_resources(params=params)


async def _list_templates(session: ClientSession, params: Any) -> Any:
    return await session.list_resource_templates(params=params)


async def _list_prompts(session: ClientSession, params: Any) -> Any:
    return await session.list_prompts(params=params)
