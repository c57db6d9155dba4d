"""The application: the API, the events, the console's files, behind the guard."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from handrail._version import __version__
from handrail.errors import Json
from handrail.serving.listening import LOCAL_NAMES
from handrail.serving.tokens import Role
from handrail_server import (
    approval_routes,
    audit_routes,
    event_routes,
    ledger_routes,
    mcp_routes,
    run_routes,
    session_routes,
    tool_routes,
)
from handrail_server.access import Access
from handrail_server.answers import ApiError, not_found, refuse
from handrail_server.deployment import Deployment
from handrail_server.guard import Guard
from handrail_server.openapi import describe_api
from handrail_server.operations import PREFIX, ApiCall, ApiOperation
from handrail_server.rates import RequestRate

_NO_ASSETS = """<!doctype html><html lang="en"><meta charset="utf-8"><title>handrail</title>
<h1>The console is not built</h1>
<p>Run <code>make console</code> in the project's folder, and start the server again. The API is at
<a href="/api/v1/">/api/v1/</a>.</p></html>"""

ENDPOINTS = ("/v1/", "/agui")
"""Where endpoints for clients of other protocols are; each needs the role to start runs."""

_OPEN = (f"{PREFIX}/session", f"{PREFIX}/openapi.json")


def who_am_i(call: ApiCall) -> Json:
    """Return who asks, and what they may do here."""
    deployment = call.deployment
    by = call.by
    return {
        "version": __version__,
        "principal": by.name,
        "role": by.role,
        "scope": by.scope,
        "proven": by.proven,
        "store": deployment.place,
        "lang": deployment.lang,
        "can_start": deployment.can_start and by.may("approve"),
        "models": list(deployment.models),
        "last_event": deployment.hub.last,
    }


_OPERATIONS: Sequence[ApiOperation] = [
    ApiOperation(
        "GET", "/", who_am_i, "see", "Say who asks, and what they may do here."
    ),
    *session_routes.OPERATIONS,
    *run_routes.OPERATIONS,
    *event_routes.OPERATIONS,
    *approval_routes.OPERATIONS,
    *ledger_routes.OPERATIONS,
    *audit_routes.OPERATIONS,
    *tool_routes.OPERATIONS,
    *mcp_routes.OPERATIONS,
]


def show_document(_: ApiCall) -> Json:
    """Return the document of the API."""
    return describe_api(OPERATIONS)


OPERATIONS = [
    *_OPERATIONS,
    ApiOperation("GET", "/openapi.json", show_document, None, "Describe this API."),
]


def role_for(method: str, path: str) -> Role | None:
    """Return the role that a path needs at least; an operation of the API may need more."""
    if path in _OPEN:
        return None
    if path.startswith("/api/"):
        return "see"
    if path.startswith(ENDPOINTS):
        return "approve"
    return None if method in ("GET", "HEAD") else "approve"


def create_app(
    deployment: Deployment,
    access: Access | None = None,
    *,
    names: Sequence[str] = LOCAL_NAMES,
    origins: Sequence[str] = (),
    routes: Iterable[BaseRoute] = (),
    rate: RequestRate | None = None,
) -> Guard:
    """Return the server as an ASGI application.

    Args:
        access: Who may do what; without it everybody everything.
        names: Under which the server is reached.
        origins: Pages of other sites that may send requests.
        routes: More routes, such as those of `endpoints`.
    """
    access = access or Access()
    if access.has_one_name:
        deployment.let_people_approve_their_own()
    app = Starlette(
        routes=[
            *(each.as_route(deployment, access) for each in OPERATIONS),
            *routes,
            Route(f"{PREFIX}/{{rest:path}}", _no_such_operation),
            Route("/{path:path}", _asset_route()),
        ],
        exception_handlers={ApiError: _answer_error},
        lifespan=_live(deployment),
    )
    app.router.redirect_slashes = False
    return Guard(
        app,
        access,
        names=names,
        origins=origins,
        needs=role_for,
        rate=rate,
    )


def _live(deployment: Deployment) -> Any:
    @asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        deployment.begin()
        try:
            yield
        finally:
            await deployment.close()

    return live


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refuse(error)


async def _no_such_operation(request: Request) -> Response:
    raise not_found(f"operation at {request.url.path}")


# ---------------------------------------------------------------------- the console's files


def _asset_route() -> Any:
    assets = _read_assets()

    async def give_asset(request: Request) -> Response:
        path = request.url.path.lstrip("/")
        asset = assets.get(path)
        if asset is not None:
            body, kind = asset
            headers = {}
            if path.startswith("assets/"):  # their names hold a digest
                headers["cache-control"] = "public, max-age=31536000, immutable"
            return Response(body, media_type=kind, headers=headers)
        if "." in path.rpartition("/")[2]:
            raise not_found("such file")
        index = assets.get("index.html")
        if index is None:
            return HTMLResponse(_NO_ASSETS)
        if path.partition("/")[0] in _SCREENS:
            return RedirectResponse(_screen_address(request))
        if path:
            raise not_found("such page")
        # a page from before an update asks for files that are gone
        return Response(
            index[0], media_type=index[1], headers={"cache-control": "no-cache"}
        )

    return give_asset


_SCREENS = ("runs", "approvals", "ledger", "audit", "tools", "live", "servers")
"""What the console shows, as the first part of an address."""


def _screen_address(request: Request) -> str:
    """Return where a screen of the console is: `/runs/r_1` is `/#/runs/r_1`, whatever path a proxy serves it below."""
    path = request.url.path.lstrip("/")
    query = f"?{request.url.query}" if request.url.query else ""
    up = "../" * path.count("/") or "./"
    return f"{up}#/{quote(path, safe='/')}{query}"


def _read_assets() -> dict[str, tuple[bytes, str]]:
    """Return the console's files by their path: no path of a request is ever looked up on the disk."""
    root = files("handrail_server") / "assets"
    if not root.is_dir():
        return {}
    return dict(_read_folder(root, ""))


def _read_folder(
    folder: Traversable, prefix: str
) -> Iterable[tuple[str, tuple[bytes, str]]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read_folder(each, f"{prefix}{each.name}/")
        else:
            kind = mimetypes.guess_type(each.name)[0] or "application/octet-stream"
            if kind.startswith("text/"):
                kind += "; charset=utf-8"
            yield f"{prefix}{each.name}", (each.read_bytes(), kind)
