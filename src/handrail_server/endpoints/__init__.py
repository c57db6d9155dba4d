"""Endpoints for programs that speak another protocol: OpenAI's, AG-UI, and Vercel's UI message stream.

    endpoints = Endpoints(runtime, {"assistant": "openai:NAME"})
    app = Starlette(routes=endpoints.routes)

Each request is a run of the runtime, stored like any other and with all the same checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from handrail.ports import Model, Selector
from handrail.runs import Run
from handrail.runtime import Runtime
from handrail_server.endpoints.ag_ui import UiEndpoint
from handrail_server.endpoints.chat_completions import ChatEndpoint, Link
from handrail_server.endpoints.driving import Door, Requester
from handrail_server.endpoints.responses import ResponsesEndpoint
from handrail_server.endpoints.serving import Identify, endpoint
from handrail_server.endpoints.ui_messages import UiMessagesEndpoint


def _anybody(_: Request) -> Requester:
    return Requester()


def _nowhere(_: Request, __: str) -> str:
    return ""


class Endpoints:
    """The endpoints of one runtime: `routes` for a Starlette application, and `aclose` for its end.

    Args:
        models: What a request may name, the default first: a name such as `openai:NAME`, or a `Model`.
        system: The instructions of every run, before a caller's own.
        options: Returns options of `Runtime.run` for a caller, such as `inject` and `deps`.
        identify: Returns whose request it is. By default nobody is identified, and everybody may do everything.
        link: Returns where a person can look at a run.
        selector: What a model is shown of many tools where the caller has tools too.
        adopt: Called with each run, as the store names it, and the task that drives it.

    Raises:
        ConfigError: There is no model, or the store keeps no runs and questions.
    """

    def __init__(
        self,
        runtime: Runtime,
        models: Mapping[str, str | Model],
        *,
        system: str = "",
        options: Callable[[Requester], Mapping[str, Any]] | None = None,
        identify: Identify = _anybody,
        link: Link = _nowhere,
        selector: str | Selector = "auto",
        adopt: Callable[[str, asyncio.Task[Run]], None] | None = None,
    ) -> None:
        door = Door(
            runtime,
            models,
            system=system,
            options=options,
            selector=selector,
            adopt=adopt,
        )
        chat = ChatEndpoint(door, identify, link)
        responses = ResponsesEndpoint(door, identify)
        ui = UiEndpoint(door, identify)
        shown = UiMessagesEndpoint(door, identify)
        self.aclose = door.aclose
        """End what is under way, so that any process may resume it. Await it before the runtime is closed."""
        self.recall = door.recall
        """Return options of `Runtime.resume` for resuming a run elsewhere in this process: its caller's tools."""
        self.routes = [
            Route("/v1/responses", endpoint(responses.respond), methods=["POST"]),
            Route("/v1/chat/completions", endpoint(chat.complete), methods=["POST"]),
            Route("/v1/ui-messages", endpoint(shown.chat), methods=["POST"]),
            Route("/agui", endpoint(ui.run), methods=["POST"]),
            Route("/v1/models", endpoint(chat.list_models), methods=["GET"]),
            Route("/v1/models/{name:path}", endpoint(chat.show_model), methods=["GET"]),
        ]
