"""handrail: the execution layer between language models and the world.

A model can only write down that it wants a tool. handrail reads that wish, checks it, asks whoever must agree, runs
it at most once, in time and in order, and gives back a result that the model can go on with. Start reading at
`handrail.core.execution`.

Names are imported when they are first used, so that `handrail --version` and a module that only defines tools stay
quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from handrail._version import __version__ as __version__

if TYPE_CHECKING:
    # what packages beside this one add: type checkers know no entry points
    import handrail_mcp as _mcp
    from handrail_frameworks.adopting import adopt as adopt
    from handrail_openmodels.grammars import grammar as grammar
    from handrail_toolbox.openapi import openapi as openapi

    mcp = _mcp

    from handrail import selectors as selectors
    from handrail import testing as testing
    from handrail.calls import Media as Media
    from handrail.calls import Page as Page
    from handrail.calls import ToolCall as ToolCall
    from handrail.calls import ToolResult as ToolResult
    from handrail.context import Context as Context
    from handrail.context import Injected as Injected
    from handrail.core import planning as planning
    from handrail.core.budgets import Budget as Budget
    from handrail.core.flow import Forbid as Forbid
    from handrail.core.flow import Require as Require
    from handrail.core.flow import Step as Step
    from handrail.core.policy import Policy as Policy
    from handrail.core.policy import Rule as Rule
    from handrail.core.retries import Backoff as Backoff
    from handrail.core.structured_output import Form as Form
    from handrail.credentials.secret import Secret as Secret
    from handrail.dialects import dialect as dialect
    from handrail.effects import Approval as Approval
    from handrail.effects import AskHuman as AskHuman
    from handrail.effects import Found as Found
    from handrail.effects import NotFound as NotFound
    from handrail.effects import Unknown as Unknown
    from handrail.engine.nested_runs import agent_tool as agent_tool
    from handrail.errors import Code as Code
    from handrail.errors import ConfigError as ConfigError
    from handrail.errors import DuplicateToolError as DuplicateToolError
    from handrail.errors import Failure as Failure
    from handrail.errors import FarFailure as FarFailure
    from handrail.errors import FarRefusal as FarRefusal
    from handrail.errors import HandrailError as HandrailError
    from handrail.errors import MissingInjection as MissingInjection
    from handrail.errors import ModelError as ModelError
    from handrail.errors import NoEffect as NoEffect
    from handrail.errors import RunWaits as RunWaits
    from handrail.errors import SetupError as SetupError
    from handrail.errors import StoreUnavailable as StoreUnavailable
    from handrail.errors import ToolDefinitionError as ToolDefinitionError
    from handrail.errors import ToolError as ToolError
    from handrail.linting import lint as lint
    from handrail.messages import AssistantMessage as AssistantMessage
    from handrail.messages import Options as Options
    from handrail.messages import SystemMessage as SystemMessage
    from handrail.messages import ToolMessage as ToolMessage
    from handrail.messages import Turn as Turn
    from handrail.messages import Usage as Usage
    from handrail.messages import UserMessage as UserMessage
    from handrail.network.clients import async_http_client as async_http_client
    from handrail.network.clients import http_client as http_client
    from handrail.network.egress import Egress as Egress
    from handrail.parsing import jsontext as jsontext
    from handrail.records import ApprovalRequest as ApprovalRequest
    from handrail.runs import Run as Run
    from handrail.runtime import Runtime as Runtime
    from handrail.sessions.message_json import messages_as_json as messages_as_json
    from handrail.sessions.message_json import messages_from_json as messages_from_json
    from handrail.sessions.session import Session as Session
    from handrail.sessions.session import SyncSession as SyncSession
    from handrail.sync import SyncRuntime as SyncRuntime
    from handrail.tools.function_tool import FunctionTool as FunctionTool
    from handrail.tools.function_tool import tool as tool
    from handrail.tools.settings import Limits as Limits
    from handrail.tools.settings import Sandbox as Sandbox
    from handrail.tools.settings import Sends as Sends
    from handrail.tools.settings import Write as Write
    from handrail.tools.tool import BaseTool as BaseTool
    from handrail.tools.tool import Then as Then
    from handrail.tools.toolset import Toolset as Toolset
    from handrail.workflows import SyncWorkflow as SyncWorkflow
    from handrail.workflows import Workflow as Workflow

_MODULES = {
    **{name: name for name in ("dialects", "errors", "events", "selectors", "testing")},
    "jsontext": "parsing.jsontext",
    "planning": "core.planning",
}
_HOME_OF = {
    name: home
    for home, names in {
        "core.budgets": "Budget",
        "calls": "Media Page ToolCall ToolResult",
        "context": "Context Injected",
        "credentials.secret": "Secret",
        "dialects": "dialect",
        "effects": "Approval AskHuman Found NotFound Unknown",
        "errors": "Code ConfigError DuplicateToolError Failure FarFailure FarRefusal HandrailError MissingInjection "
        "ModelError NoEffect RunWaits SetupError StoreUnavailable ToolDefinitionError ToolError",
        "core.flow": "Forbid Require Step",
        "linting": "lint",
        "messages": "AssistantMessage Options SystemMessage ToolMessage Turn Usage UserMessage",
        "network.clients": "async_http_client http_client",
        "network.egress": "Egress",
        "engine.nested_runs": "agent_tool",
        "core.policy": "Policy Rule",
        "core.retries": "Backoff",
        "records": "ApprovalRequest",
        "runs": "Run",
        "runtime": "Runtime",
        "sessions.message_json": "messages_as_json messages_from_json",
        "sessions.session": "Session SyncSession",
        "core.structured_output": "Form",
        "sync": "SyncRuntime",
        "tools.function_tool": "FunctionTool tool",
        "tools.settings": "Limits Sandbox Sends Write",
        "tools.tool": "BaseTool Then",
        "tools.toolset": "Toolset",
        "workflows": "SyncWorkflow Workflow",
    }.items()
    for name in names.split()
}

_ADDED = ("adopt", "grammar", "mcp", "openapi")
"""What packages beside this one add; `plugins` finds it."""

__all__ = [*_HOME_OF, *_MODULES]  # every entry is a string


def __getattr__(name: str) -> Any:
    if home := _MODULES.get(name):
        return import_module(f"handrail.{home}")
    if home := _HOME_OF.get(name):
        # from now on without a search
        found = globals()[name] = getattr(import_module(f"handrail.{home}"), name)
        return found
    if name in _ADDED:
        plugins = import_module("handrail.plugins")
        if name in plugins.list_added("names"):
            found = globals()[name] = plugins.load("names", name)
            return found
    raise AttributeError(f"module 'handrail' has no attribute {name!r}")


def __dir__() -> list[str]:
    added = import_module("handrail.plugins").list_added("names")
    return sorted({*globals(), *__all__, *added})
