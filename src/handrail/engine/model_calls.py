"""How a run asks its model: what it shows, how long it waits, and what it does when the answer must have a form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.context import Injected
from handrail.core.conversation import AskModel
from handrail.core.history import Window, fold, to_fold
from handrail.core.retries import MODEL_WAITS, Backoff
from handrail.core.structured_output import OutputTracker
from handrail.engine.active_run import (
    OUT_OF_TIME,
    ActiveRun,
    ListenerAdapter,
    tell_all,
)
from handrail.engine.eager_tasks import current_task
from handrail.engine.read_result import READ_RESULT
from handrail.engine.timeouts import ReusableTimeout
from handrail.engine.tool_visibility import (
    ToolVisibility,
    add_mcp_approval,
    select_tools,
)
from handrail.engine.user_code import is_cancelled_from_outside
from handrail.errors import HandrailError, ModelError
from handrail.events import (
    AskedOtherwise,
    ContextFolded,
    ModelAnswered,
    ModelAsked,
    ToolsSelected,
)
from handrail.futures import wait_for
from handrail.messages import Deferral, Options, ToolMessage, Turn
from handrail.ports import Model, Request, Selection, Store
from handrail.tools.tool import BaseTool, missing_injection
from handrail.tools.toolset import Toolset
from handrail.workers.processes import locate_function
from handrail.workers.threads import wrap_error

RESTS = Backoff(2.0, 30.0)
"""How long a model that is away is not asked by runs that can wait; longer where its provider asks for that. The first
rest is shorter than the first wait of a run (`core.retries.MODEL_WAITS`), and so on: a run that is alone with its model
is not held back."""

LONGEST_TRIAL_S = 60.0
"""How long the others wait for the end of a trial, whose run may have been cancelled."""


class _Away(Struct):
    """A model that did not answer last.

    Attributes:
        at: When a trial ended or began last, on the clock of `AwayModels`.
        asked_s: The wait that its provider has asked for, `MODEL_WAITS.most_s` at most.
        failures: How many trials have failed in a row.
        is_tried: Whether a run tries it now.
    """

    at: float
    status: str = ""
    asked_s: float = 0.0
    failures: int = 0
    is_tried: bool = True


class AwayModels:
    """Which models of a process are away, as its runs have found out.

    In an outage each run that waits would take a place in its worker for as long as its attempts last, and runs of
    other models would wait behind it. So one run at a time tries a model that is away, and the others get a ModelError.
    The first answer to any run ends this.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # with the model, so that nothing else gets its id
        self._away: dict[int, tuple[Model, _Away]] = {}

    def check(self, model: Model, *, waits: bool) -> None:
        """Let a run that can wait ask a model, unless it is away and not due.

        Args:
            waits: The run has waited for this model before. Any other one asks after a single failure, too, which
                may be that of one request.

        Raises:
            ModelError: The model is not to be asked now.
        """
        found = self._away.get(id(model))
        if found is None:
            return
        away = found[1]
        passed_s = self._now() - away.at
        rest_s = max(RESTS.before(away.failures + 1, 1.0), away.asked_s)
        if passed_s >= (LONGEST_TRIAL_S if away.is_tried else rest_s):
            away.at = self._now()
            away.is_tried = True
        elif waits or away.failures > 1:
            raise ModelError(
                f"{model.name} was not asked, since it has not answered another run ({away.status})",
                code="away",
                retryable=True,
            )

    def note_answer(self, model: Model) -> None:
        """Note that a model has answered."""
        if self._away:
            self._away.pop(id(model), None)

    def note_failure(self, model: Model, error: ModelError) -> None:
        """Note why a model has not answered. A refusal is an answer: its provider is not away."""
        if not error.retryable or error.answered:
            self.note_answer(model)
            return
        _, away = self._away.setdefault(id(model), (model, _Away(self._now())))
        # runs that were under way with the trial count as one
        if away.is_tried:
            away.is_tried = False
            away.at = self._now()
            # not its text, which may quote what one tenant has asked
            away.status = str(error.status or error.code)
            away.asked_s = min(error.retry_after_s or 0.0, MODEL_WAITS.most_s)
            away.failures += 1


class ModelCaller:
    """Asks the models of one deployment.

    Args:
        showing: Which tools a model is shown.
        store: Where results are stored that no longer fit the conversation.
        now: Monotonic seconds.
        away: Which models are away.
    """

    def __init__(
        self,
        showing: ToolVisibility,
        store: Store,
        now: Callable[[], float],
        away: AwayModels,
    ) -> None:
        self._showing = showing
        self._store = store
        self._now = now
        self._away = away

    def check_away(self, active: ActiveRun, model: Model, turn: int) -> None:
        """Check that a run that can wait longer for its model may ask it now, once for each turn.

        Raises:
            ModelError: Another run tries the model, or has just done so.
        """
        if active.model_wait is None or active.tried_turn == turn:
            return
        wait = active.model_wait.at_turn(turn)
        if wait.waited_s < wait.most_s:
            self._away.check(model, waits=wait.tries > 0)
        active.tried_turn = turn

    def shown_tools(self, active: ActiveRun) -> Toolset:
        """Return the tools that the model is shown in the next turn: those that the policy lets it use.

        Raises:
            MissingInjection: One of them needs a value that the caller did not give.
        """
        permitted, tools = self._showing.find_permitted()
        # where there is no tool there is no result to read
        if not (active.reads_on and (permitted.by_name or active.progress.reads_on)):
            tools = permitted
        active.permitted = permitted
        if active.checked is not tools:
            # Of a thousand tools a look at each would cost more than the turn.
            check_injected(
                tools.compute_once("needing", partial(_tools_with_needs, tools)),
                active.injected,
            )
            active.checked = tools
        return tools

    async def ask(self, active: ActiveRun, model: Model, asked: AskModel) -> Turn:
        """Ask the model within what is left of the run's time.

        Raises:
            ModelError: It did not answer, or not with a `Turn`.
        """
        left_s = active.settings.deadline.at - self._now()
        tools = asked.tools
        window = active.window
        if window is not None and await self._fold(active, window, asked.number):
            tools = self.shown_tools(active)
        patience = active.patience
        if patience is None or patience.task is not current_task(
            asyncio.get_running_loop()
        ):
            patience = active.wait_with(ReusableTimeout())
        patience.begin(left_s)
        if active.cancelled:
            patience.stop()
        try:
            turn = await self._request(active, model, asked, tools, left_s=left_s)
        except HandrailError:
            raise
        except asyncio.CancelledError as error:
            if patience.ended_here():
                raise ModelError(
                    "the model did not answer within the run's time", code=OUT_OF_TIME
                ) from None
            if is_cancelled_from_outside():
                raise
            raise _error_without_text(model, error) from error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            wrap_error(error)  # what comes from the keyboard passes
            raise _error_without_text(model, error) from error
        finally:
            patience.answered()
        if active.window is not None:
            active.window.learn_scale(turn.usage.input_tokens)
        if active.observers:
            tell_all(active.observers, active.id, ModelAnswered(asked.number, turn))
        if active.trail is not None:
            active.trail.note_answer(asked.number, turn)
        return turn

    async def _request(
        self,
        active: ActiveRun,
        model: Model,
        asked: AskModel,
        tools: Toolset,
        *,
        left_s: float,
    ) -> Turn:
        """Choose what the model is shown, and ask it."""
        options = active.options
        if asked.choice:
            options = replace(options, tool_choice=asked.choice)
        messages = active.progress.messages
        selector = active.selector or self._showing.selector
        # what reads on is not the selector's to choose
        permitted = tools if active.permitted is None else active.permitted
        if selector.waits:
            selection = await asyncio.to_thread(
                select_tools, selector, permitted, messages
            )
        else:
            selection = select_tools(selector, permitted, messages)
        if selection.names is not None:
            is_deferred = bool(selection.search) and _defers_tools(model)
            if is_deferred:
                options = replace(options, deferral=_find_deferral(selection))
            tools = self._choose(
                active,
                tools,
                selection,
                number=asked.number,
                choice=options.tool_choice,
                is_deferred=is_deferred,
            )
        if active.flow is not None:
            allowed = active.flow.list_allowed_tools(tools)
            if allowed is not None:
                options = replace(options, allowed=allowed)
        if options.provider_tools and _asks_about_mcp(model, options):
            tools = add_mcp_approval(tools)
        if active.boundaries is not None:
            messages = active.boundaries.mark(messages)
        request = Request(messages, tools, options, left_s)
        listener = None
        if active.observers:
            active.tell(ModelAsked(asked.number, len(asked.messages), len(tools)))
            listener = ListenerAdapter(active)
        try:
            if active.wanted is None:
                turn = await model.ask(request, listener)
            else:
                turn = await self._ask_for_form(
                    active,
                    active.wanted,
                    model,
                    request,
                    listener=listener,
                    asked=asked,
                )
        except ModelError as error:
            self._away.note_failure(model, error)
            raise
        self._away.note_answer(model)
        if not isinstance(turn, Turn):
            raise ModelError(
                f"the model {model.name} answered with a {type(turn).__name__}, which is no Turn"
            )
        return turn

    def _choose(
        self,
        active: ActiveRun,
        tools: Toolset,
        selection: Selection,
        *,
        number: int,
        choice: str,
        is_deferred: bool,
    ) -> Toolset:
        """Return those tools that a selector has chosen for this turn, what is new at the end."""
        # What the request itself speaks of is shown in any case: the tool that must be called, the one that reads on.
        required: Sequence[str] = ()
        if active.flow is not None:
            required = active.flow.list_required_tools(tools)
        chosen = selection.names or ()
        if is_deferred:
            chosen = (*selection.deferrable, *selection.deferred)
        names = (READ_RESULT.name, *chosen, *required, choice)
        offered = active.offered
        if offered is None or offered[0] != names or offered[1] is not tools:
            offered = active.offered = (
                names,
                tools,
                self._showing.choose_tools(names, tools, active.selector),
            )
        if active.observers:
            active.tell(
                ToolsSelected(
                    number,
                    selection.strategy,
                    [tool.name for tool in offered[2]],
                    len(tools),
                )
            )
        return offered[2]

    async def _fold(self, active: ActiveRun, window: Window, turn: int) -> bool:
        """Let old results become handles where the conversation outgrows its window; say whether any did."""
        messages = active.progress.messages
        folds: list[tuple[int, str]] = []
        excess_tokens = window.overflows(messages)
        if not excess_tokens:
            return False
        for position in to_fold(messages, window.sizes, excess_tokens):
            message = cast(ToolMessage, messages[position])
            try:
                handle = message.result.handle or await wait_for(
                    self._store.save_result(active.id, message.result.text)
                )
            except Exception as error:
                # a store's own errors too: what cannot be stored stays where it is
                logs.log_exception(
                    "an old result could not be stored, and stays in the conversation",
                    error,
                )
                break
            messages[position] = fold(message, handle)
            folds.append((position, handle))
        if folds:
            window.forget_sizes()
            active.progress.reads_on = True
            if active.recording is not None:
                active.recording.note_folds(turn, folds)
            active.tell(ContextFolded(len(folds), window.size(messages)))
        return bool(folds)

    async def _ask_for_form(
        self,
        active: ActiveRun,
        form: OutputTracker,
        model: Model,
        request: Request,
        *,
        listener: ListenerAdapter | None,
        asked: AskModel,
    ) -> Turn:
        """Ask for the answer in its form; in the next way where a server refuses to be asked in one."""
        while True:
            before = form.way
            try:
                turn = await model.ask(
                    form.prepare_request(request, asked.choice), listener
                )
            except ModelError as error:
                if not form.fall_back(error):
                    raise
                active.tell(AskedOtherwise(before, form.way, str(error)))
            else:
                form.settled = True
                return turn


def _defers_tools(model: Model) -> bool:
    """Whether the model's provider loads tools itself that a search of ours found; see `Options.deferral`."""
    return bool(getattr(model, "defers_tools", False))


def _asks_about_mcp(model: Model, options: Options) -> bool:
    """Whether the model's provider may ask about calls on MCP servers; see `tools.mcp_approval`."""
    asks = getattr(model, "asks_about_mcp", None)
    return asks is not None and bool(asks(options))


def _find_deferral(selection: Selection) -> Deferral:
    return Deferral(selection.search, frozenset(selection.deferred))


def _error_without_text(model: Model, error: BaseException) -> ModelError:
    """Return the failure of a model that raised what it may not, without the text of that, which may hold keys."""
    return ModelError(
        f"the model {model.name} raised {type(error).__name__}", code="raised"
    )


def _tools_with_needs(tools: Toolset) -> list[BaseTool]:
    """Return the tools that need something of whoever runs them."""
    return [
        tool
        for tool in tools
        if tool.injected_parameters or tool.then is not None or tool.isolation != "none"
    ]


def check_injected(tools: Iterable[BaseTool], injected: Mapping[str, Any]) -> None:
    """Raise MissingInjection when a tool needs a value that nobody gave.

    Raises:
        ToolDefinitionError: A tool is to run in a process of its own, which cannot import it.
    """
    for tool in tools:
        if tool.then is not None:
            check_injected([tool.then.tool], injected)
        if tool.isolation != "none":
            locate_function(tool)
        for name, kind in tool.injected_parameters.items():
            if issubclass(kind, Injected) and name not in injected:
                raise missing_injection(tool, name)
        tool.with_injected(injected)  # raises where a rule cannot look at a value
