"""The endpoints of `handrail serve`: the runs of its deployment, for those whom its guard let through."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from handrail.engine.scoped_store import qualify_name
from handrail.ports import ApprovalStore, RunStore
from handrail_server.access import Principal
from handrail_server.deployment import Deployment
from handrail_server.endpoints import Endpoints
from handrail_server.endpoints.driving import Requester
from handrail_server.endpoints.refusals import Refusal
from handrail_server.guard import PRINCIPAL


def mount_endpoints(deployment: Deployment) -> Endpoints | None:
    """Return the endpoints of a deployment; None where it cannot start runs, or its store does not keep them."""
    store = deployment.store
    keeps = isinstance(store, RunStore) and isinstance(store, ApprovalStore)
    if not deployment.can_start or not keeps:
        return None
    defaults = deployment.defaults

    def options(caller: Requester) -> Mapping[str, Any]:
        return {
            "inject": defaults.inject,
            "deps": defaults.deps,
            "policy": deployment.policy,
            "observers": deployment.observers(caller.scope or ""),
        }

    endpoints = Endpoints(
        deployment.runtime,
        {name_outside(name): model for name, model in deployment.models.items()},
        system=defaults.system,
        options=options,
        identify=identify,
        link=link_to_run,
        adopt=deployment.adopt,
    )
    deployment.recall = endpoints.recall
    return endpoints


def name_outside(model: str) -> str:
    """Return what clients call a model: its name without what may be a key in its address.

    >>> name_outside("openai:m@https://anna:key@host/v1?key=abc")
    'openai:m@https://host/v1'
    """
    return re.sub(r"//[^/@]*@", "//", model.partition("?")[0])


def identify(request: Request) -> Requester:
    """Return whose request it is, as the guard has found."""
    principal = request.scope.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Refusal(401, "send a bearer token in the header `Authorization`")
    may = principal.may("approve")
    return Requester(principal.name, principal.scope, may_start=may, may_approve=may)


def link_to_run(request: Request, run_id: str) -> str:
    """Return where the console shows a run."""
    caller = identify(request)
    name = qualify_name(caller.scope or "", run_id)
    address = request.base_url
    if request.headers.get("x-forwarded-proto") == "https":
        address = address.replace(scheme="https")
    return f"{address}#/runs/{quote(name, safe='')}"
