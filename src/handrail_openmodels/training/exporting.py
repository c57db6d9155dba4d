"""Recorded runs as training data: rows of one form, each with a conversation or a pair of answers.

A run is exported as the model saw it, except that secrets are taken out, and that the model is not taught calls that
were refused or that a person changed: these are masked where the form has weights, and left out where it has none. A
run that the form cannot hold is left out. The summary counts what was left out, and why.

Rule 1: a row reads back to the same calls and results. A run for which that does not hold is left out.
Rule 2: a run is left out if it was recorded with other tools, and the tools that are named would refuse one of its
        calls today.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core.admission import ParsedCall, parse_call
from handrail.core.history import as_history, sanitize
from handrail.core.structured_output import name_output_tool
from handrail.dialects.wires import openai_chat
from handrail.engine.read_result import READ_RESULT
from handrail.errors import ConfigError, Failure, Json
from handrail.futures import result_now
from handrail.history.run_history import HistoryTurn, RunHistory
from handrail.journal.codec import toolset_digest
from handrail.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Finish,
    Message,
    ToolMessage,
    Turn,
)
from handrail.parsing.names import resolve_name
from handrail.ports import ApprovalStore, RunStore
from handrail.records import StoredRun
from handrail.tools.toolset import Toolset
from handrail_openmodels.training import forms
from handrail_openmodels.training.examples import Example, Function, Pair
from handrail_openmodels.training.mistakes import (
    EDITED,
    REFUSALS,
    Mistake,
    find_mistakes,
)
from handrail_openmodels.training.redacting import Redaction
from handrail_openmodels.training.selection import LeftOut, Selection
from handrail_openmodels.training.texts import dump, load_arguments, read_functions

Mistakes: TypeAlias = Literal["mask", "drop", "keep"]
"""What becomes of calls that the model should not have written: `mask` exports them and marks their answers as not to
be learnt; `drop` leaves them out, and the whole run if one of them was never corrected; `keep` teaches them like all
others."""

_OURS = frozenset((READ_RESULT.name, SEARCH_TOOLS))
"""Tools that a run adds to those it is given."""

_ALL = 1_000_000_000


class Summary(Struct):
    """What an export has written so far, and what it left out.

    Attributes:
        runs: How many runs were read.
        rows: How many rows were written.
        left_out: Why a run or a pair was left out, and how often.
        notes: How the rows differ from the runs, and how often.
    """

    runs: int = 0
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {
            "runs": self.runs,
            "rows": self.rows,
            "left_out": dict(self.left_out.most_common()),
            "notes": dict(self.notes.most_common()),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as lines for people."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        yield f"{rows} from {runs}"
        for reason, count in self.left_out.most_common():
            yield f"left out: {count}, {reason}"
        for note, count in self.notes.most_common():
            yield f"{note}: {count}"


class TrainingExport:
    """Turns recorded runs into rows of one form, and counts in `summary` what it does.

    Args:
        form: One of `forms.NAMES`, such as `openai` or `preference`.
        tools: The tools of the runs. Rows describe them, and calls are checked against them. Without them rows describe
            no tools, because a journal has only their names.
        selection: Which runs are taken.
        redact: Take secrets out: what looks like one, and seals of the journal.
        secrets: Further secrets to take out, whatever they look like.
        mistakes: `mask` by default where the form has weights, else `drop`.

    Raises:
        ConfigError: There is no such form, or it cannot mask; or runs are selected by tags, and no tools have them.
    """

    def __init__(
        self,
        form: str,
        *,
        tools: Toolset | None = None,
        selection: Selection | None = None,
        redact: bool = True,
        secrets: Iterable[str] = (),
        mistakes: Mistakes | None = None,
    ) -> None:
        if form not in forms.NAMES:
            raise ConfigError(
                f"there is no form {form!r} of training data; the forms are {', '.join(forms.NAMES)}"
            )
        has_weights = form in forms.FORMS and forms.FORMS[form].has_weights
        if mistakes == "mask" and not has_weights:
            raise ConfigError(
                f"rows of the form {form} cannot say what is not to be learnt; use `drop` or `keep`"
            )
        if selection is not None and selection.tags and tools is None:
            raise ConfigError(
                "a selection by tags needs `tools`, since a journal has only their names"
            )
        self.form = form
        self.summary = Summary()
        self._tools = tools
        self._selection = selection or Selection()
        self._redaction = Redaction(secrets) if redact else None
        self._mistakes: Mistakes = mistakes or ("mask" if has_weights else "drop")
        self._functions = self._describe_tools()
        self._digest = "" if tools is None else toolset_digest(tools.snapshot())

    def rows(
        self, runs: Iterable[StoredRun], store: object = None
    ) -> Iterator[dict[str, Json]]:
        """Yield the rows of runs: one for each run, of `preference` one for each pair.

        Args:
            store: The store of the runs, which knows what arguments people changed.
        """
        for stored in runs:
            self.summary.runs += 1
            try:
                for row in self._make_rows(stored, store):
                    self.summary.rows += 1
                    yield row
            except LeftOut as reason:
                self.summary.left_out[str(reason)] += 1

    def _make_rows(self, stored: StoredRun, store: object) -> Iterator[dict[str, Json]]:
        history = self._selection.read(stored, self._tools)
        if history.asked.workflow:
            raise LeftOut("its steps were made by code, not by a model")
        if not history.turns:
            raise LeftOut("the model has not answered")
        mistakes = find_mistakes(history, _load_edits(store, stored.record.run_id))
        if self.form == forms.PREFERENCE:
            yield from self._make_pair_rows(history, mistakes)
        else:
            yield self._make_row(history, mistakes)

    # ------------------------------------------------------------------ examples

    def _make_row(
        self, history: RunHistory, mistakes: Sequence[Mistake]
    ) -> dict[str, Json]:
        self._check_tools(history)
        if self._mistakes == "drop":
            turns = _drop_mistakes(history.turns, mistakes)
            unlearnt: set[int] = set()
        else:
            turns = list(history.turns)
            unlearnt = {mistake.turn for mistake in mistakes}
        messages, positions = _build_conversation(
            history, turns, self._find_output_tool(history)
        )
        shown, changed = self._redact(messages)
        masked: set[int] = set()
        if self._mistakes == "mask":
            masked = {positions[each] for each in unlearnt if each in positions}
            masked |= _number_answers(shown, changed)
        else:
            self._check_redacted_calls(messages, shown)
        example = Example(
            shown,
            self._functions,
            frozenset(masked),
            history.asked.options.parallel,
        )
        row = self._write(example)
        if masked:
            self.summary.notes["answers that are not to be learnt"] += len(masked)
        if self._mistakes == "drop":
            self._count_dropped(mistakes)
        return row

    def _count_dropped(self, mistakes: Sequence[Mistake]) -> None:
        edited = sum(mistake.reason == EDITED for mistake in mistakes)
        notes = {
            "corrected calls left out": len(mistakes) - edited,
            "calls taught as a person changed them": edited,
        }
        for note, count in notes.items():
            if count:
                self.summary.notes[note] += count

    def _write(self, example: Example) -> dict[str, Json]:
        form = forms.FORMS[self.form]
        try:
            row = form.write(example)
            again = form.read(row)
        except (ValueError, ConfigError) as error:
            raise LeftOut(f"the form cannot hold it: {error}") from error
        if not _same_calls(example, again):
            raise LeftOut(
                "the form cannot hold it: a text would read back as something else"
            )
        return row

    def _redact(self, messages: Sequence[Message]) -> tuple[list[Message], set[int]]:
        """Return the messages without secrets, and the places of those that had some."""
        redaction = self._redaction
        if redaction is None:
            return list(messages), set()
        before = redaction.changed
        shown = [redaction.redact_message(message) for message in messages]
        if redaction.changed > before:
            self.summary.notes["texts with secrets taken out"] += (
                redaction.changed - before
            )
        changed = {
            place
            for place, (old, new) in enumerate(zip(messages, shown, strict=True))
            if old is not new
        }
        return shown, changed

    def _check_redacted_calls(
        self, messages: Sequence[Message], shown: Sequence[Message]
    ) -> None:
        """Check that the tools would still take each call that lost a secret, since it is to be learnt."""
        for old, new in zip(messages, shown, strict=True):
            if not isinstance(old, AssistantMessage):
                continue
            if not isinstance(new, AssistantMessage):
                continue
            finish = old.turn.finish
            for before, after in zip(old.turn.calls, new.turn.calls, strict=True):
                if before is not after and self._has_lost_form(before, after, finish):
                    raise LeftOut(
                        "with its secrets taken out, a tool would refuse a call"
                    )

    def _has_lost_form(self, before: ToolCall, after: ToolCall, finish: Finish) -> bool:
        if self._tools is None:
            return not _has_same_types(load_arguments(before), load_arguments(after))
        if _refuse(before, self._tools, finish) is not None:
            return False
        return _refuse(after, self._tools, finish) is not None

    # ------------------------------------------------------------------ pairs

    def _make_pair_rows(
        self, history: RunHistory, mistakes: Sequence[Mistake]
    ) -> Iterator[dict[str, Json]]:
        if not mistakes:
            raise LeftOut("nothing in it was refused or changed")
        for number in sorted({mistake.turn for mistake in mistakes}):
            of_turn = [each for each in mistakes if each.turn == number]
            try:
                pair = self._make_pair(history, number, of_turn)
                try:
                    row = forms.write_pair(pair)
                except ConfigError as error:
                    raise LeftOut(str(error)) from error
            except LeftOut as reason:
                self.summary.left_out[f"a pair: {reason}"] += 1
            else:
                self.summary.notes[f"pairs by {pair.reason}"] += 1
                yield row

    def _make_pair(
        self, history: RunHistory, number: int, mistakes: Sequence[Mistake]
    ) -> Pair:
        turn = history.turns[number].turn
        calls = list(turn.calls)
        for mistake in mistakes:
            if mistake.correction is None:
                raise LeftOut("a refused call was never corrected")
            if mistake.reason != EDITED and mistake.reason not in REFUSALS:
                raise LeftOut(
                    "it was refused for who asked, not for how it was written"
                )
            if _is_no_object(mistake.call.arguments):
                raise LeftOut("the rejected arguments are no JSON object")
            calls[mistake.place] = replace(mistake.correction, id=mistake.call.id)
            self._check_pair(mistake, turn.finish)
        if any(_is_no_object(call.arguments) for call in calls):
            raise LeftOut("the chosen arguments are no JSON object")
        prompt, _ = _build_conversation(
            history, history.turns[:number], self._find_output_tool(history)
        )
        chosen = AssistantMessage(replace(turn, calls=tuple(calls), raw=None))
        rejected = AssistantMessage(replace(turn, raw=None))
        question = history.turns[number].question
        conversation = [*sanitize([*prompt, *question]).messages, chosen, rejected]
        shown, changed = self._redact(conversation)
        if changed & {len(shown) - 1, len(shown) - 2}:
            raise LeftOut("its answers held a secret")
        return Pair(
            shown[:-2], shown[-2:-1], shown[-1:], self._functions, mistakes[0].reason
        )

    def _check_pair(self, mistake: Mistake, finish: Finish) -> None:
        """Check that the tools would decide today as they did then."""
        correction = mistake.correction
        if self._tools is None or correction is None:
            return
        if _refuse(correction, self._tools, "calls") is not None:
            raise LeftOut("the tools would refuse the chosen call today")
        refused = _refuse(mistake.call, self._tools, finish) is not None
        # rules are code of the tool's author, which may need what nobody injects here
        if not refused and mistake.reason not in (EDITED, "RULE_VIOLATED"):
            raise LeftOut("the tools would take the rejected call today")

    # ------------------------------------------------------------------ tools

    def _describe_tools(self) -> tuple[Function, ...]:
        if self._tools is None:
            return ()
        functions = read_functions(openai_chat.DIALECT.definitions(self._tools))
        if self._redaction is None:
            return functions
        return tuple(self._redaction.redact_function(each) for each in functions)

    def _find_output_tool(self, history: RunHistory) -> str:
        """Return the name of the tool that gave a run's answer its form; empty if the run asked for none.

        Without the tools, their names are read from the results.
        """
        if history.asked.output is None:
            return ""
        if self._tools is not None:
            return name_output_tool(self._tools)
        names = {
            result.name for turn in history.turns for result in turn.results if result
        }
        return name_output_tool(names)

    def _check_tools(self, history: RunHistory) -> None:
        """Check that a run's calls are calls of these tools, where it was recorded with others."""
        if self._tools is None or history.stored.record.toolset == self._digest:
            return
        # a process that submits a run to workers may have no tools itself
        if history.stored.record.toolset not in ("", toolset_digest(())):
            self.summary.notes["runs recorded with other tools than these"] += 1
        for turn in history.turns:
            for call, result in zip(turn.turn.calls, turn.results, strict=True):
                if result is None or not result.ok or call.name in _OURS:
                    continue
                if _refuse(call, self._tools, turn.turn.finish) is not None:
                    raise LeftOut("its tools have changed: they would refuse a call")


def export_runs(
    store: RunStore, export: TrainingExport, runs: Sequence[str] = ()
) -> Iterator[dict[str, Json]]:
    """Yield the rows of the runs in a store, the oldest first; blocks while the store answers.

    Args:
        runs: The names of the runs; all that the export selects by default.

    Raises:
        ConfigError: There is no run of such a name.
    """
    return export.rows(load_runs(store, runs), store)


def _load_edits(store: object, run_id: str) -> Mapping[str, Mapping[str, Json]]:
    """Return the arguments that people changed in a run, by the step of the call."""
    if not isinstance(store, ApprovalStore):
        return {}
    questions = result_now(store.list_approvals(state="", run_id=run_id))
    return {each.step: each.edited for each in questions if each.edited is not None}


def load_runs(store: RunStore, runs: Sequence[str] = ()) -> Iterator[StoredRun]:
    """Yield runs by name; without names all of them, the oldest first."""
    names: Iterable[str] = runs
    if not runs:
        records = result_now(store.list_runs(most=_ALL))
        names = [record.run_id for record in reversed(records)]
    for name in names:
        stored = result_now(store.load_run(name))
        if stored is not None:
            yield stored
        elif runs:
            raise ConfigError(f"there is no run {name!r} in this store")


# ---------------------------------------------------------------------- conversations


def _build_conversation(
    history: RunHistory, turns: Sequence[HistoryTurn], output_tool: str
) -> tuple[list[Message], dict[int, int]]:
    """Return a run's messages, fit to send, and which answer among them (from 0) each of its turns is.

    `sanitize` leaves out no answer that is not empty, so the numbers hold for what it returns.

    Args:
        output_tool: The tool whose calls only give an answer its form; empty if there is none.
    """
    messages = [
        _without_raw(message)
        for message in history.asked.messages
        if not _is_empty(message)
    ]
    answers = sum(isinstance(message, AssistantMessage) for message in messages)
    numbers = {each.number: place for place, each in enumerate(history.turns)}
    positions: dict[int, int] = {}
    for each in turns:
        messages += each.question
        answer, results = _as_answer(each, output_tool)
        if _is_empty(answer):
            continue
        positions[numbers[each.number]] = answers
        answers += 1
        messages += [answer, *results]
    return list(sanitize(messages).messages), positions


def _without_raw(message: Message) -> Message:
    """Return a message without the provider's own, which nobody redacts."""
    if not isinstance(message, AssistantMessage) or message.turn.raw is None:
        return message
    return AssistantMessage(replace(message.turn, raw=None))


def _as_answer(
    turn: HistoryTurn, output_tool: str
) -> tuple[AssistantMessage, list[Message]]:
    """Return a turn as an answer and its results, without what only the provider reads.

    A call that only gives the answer its form (`output=`) has no result; its arguments become the answer's text. Any
    other call without a result is one that a crash interrupted, and stays.
    """
    answer = replace(turn.turn, raw=None)
    forms = [
        call
        for call, result in zip(turn.turn.calls, turn.results, strict=True)
        if result is None and output_tool and _names_tool(call, output_tool)
    ]
    if forms:
        calls = tuple(call for call in answer.calls if call not in forms)
        text = answer.text or as_history(forms[0].arguments)
        answer = replace(answer, text=text, calls=calls)
    results: list[Message] = [
        ToolMessage(result) for result in turn.results if result is not None
    ]
    return AssistantMessage(answer), results


def _names_tool(call: ToolCall, name: str) -> bool:
    return resolve_name(call.name, [name]) == name


def _is_empty(message: Message) -> bool:
    if not isinstance(message, AssistantMessage):
        return False
    turn = message.turn
    return not (turn.text or turn.calls or turn.refusal)


def _drop_mistakes(
    turns: Sequence[HistoryTurn], mistakes: Sequence[Mistake]
) -> list[HistoryTurn]:
    """Return the turns without corrected mistakes, and with the arguments that people wrote.

    Raises:
        LeftOut: A mistake was never corrected; what the model wrote later may refer to it.
    """
    remaining: list[HistoryTurn] = []
    for number, turn in enumerate(turns):
        of_turn = {each.place: each for each in mistakes if each.turn == number}
        if not of_turn:
            remaining.append(turn)
            continue
        if any(each.correction is None for each in of_turn.values()):
            raise LeftOut("a refused call was never corrected")
        calls: list[ToolCall] = []
        results: list[ToolResult | None] = []
        for place, call in enumerate(turn.turn.calls):
            mistake = of_turn.get(place)
            if mistake is None:
                calls.append(call)
                results.append(turn.results[place])
            elif mistake.reason == EDITED and mistake.correction is not None:
                calls.append(mistake.correction)
                results.append(turn.results[place])
        if calls:
            answer: Turn = replace(turn.turn, calls=tuple(calls))
            remaining.append(replace(turn, turn=answer, results=results))
        elif turn.question:
            # the question stays, the answer goes
            answer = replace(turn.turn, text="", refusal="", calls=())
            remaining.append(replace(turn, turn=answer, results=()))
    return remaining


def _number_answers(messages: Sequence[Message], changed: set[int]) -> set[int]:
    """Return the numbers, counted among the answers from 0, of the answers at the places `changed`."""
    places = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, AssistantMessage)
    ]
    return {number for number, place in enumerate(places) if place in changed}


# ---------------------------------------------------------------------- checks


def _refuse(call: ToolCall, tools: Toolset, finish: Finish) -> Failure | None:
    """Return why a tool's own checks refuse a call; None if they take it."""
    parsed = parse_call(call, tools, finish)
    if not isinstance(parsed, ParsedCall):
        return parsed
    checked = parsed.tool.check_arguments(parsed.arguments)
    return checked if isinstance(checked, Failure) else None


def _has_same_types(before: Json, after: Json) -> bool:
    """Whether only texts differ. Used where no schema can decide whether the tool would still take the call."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return all(map(_has_same_types, before.values(), after.values()))
    if isinstance(before, list) and isinstance(after, list):
        return all(map(_has_same_types, before, after))
    return type(before) is type(after)


def _is_no_object(arguments: str) -> bool:
    return '"INVALID_JSON"' in as_history(arguments)


def _same_calls(written: Example, again: Example) -> bool:
    """Whether calls and results are the same in both."""
    return (
        [(call.name, _canonical(call)) for call in written.calls]
        == [(call.name, _canonical(call)) for call in again.calls]
        and [result.text for result in written.results]
        == [result.text for result in again.results]
        and len(written.turns) == len(again.turns)
    )


def _canonical(call: ToolCall) -> str:
    return dump(load_arguments(call))
