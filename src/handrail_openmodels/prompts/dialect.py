"""Prompts for open models: a conversation as the text that a model family was trained on, and its answer read back.

A raw completion endpoint knows no roles and no tools: what the model sees is one text. A `Template` says how a family
lays out a conversation in it, a `Syntax` how the model writes its answers; a `PromptDialect` is the two together.

Rule 1: nobody forges a turn. Text of a person, a tool, a description or the model itself is put into the prompt
        with its control tokens broken: a space after the first character (`<|im_end|>` becomes `< |im_end|>`). That is
        visible, harmless and the same every time, so that the server's prefix cache still fits; and no text that was
        broken so can become a token again.
Rule 2: a prompt depends on its arguments alone. Dates come from the caller (`today`), never from a clock.
Rule 3: text with no token in it is in the prompt to the last character as the family's own template would put it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from handrail._lazy import cached_property
from handrail.calls import ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    ToolLike,
    compute_once,
    json_bodies,
    received,
    writing,
)
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.wires.base import refuse_effort
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    Message,
    Options,
    SystemMessage,
    Turn,
    UserMessage,
    conversation_of,
)
from handrail.ports import Described
from handrail_openmodels.prompts import reader as texts
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
    break_tokens,
    break_tokens_in,
    describe_tool,
)
from handrail_openmodels.prompts.parameter_calls import ParameterCalls
from handrail_openmodels.prompts.reader import Syntax, TextReader
from handrail_openmodels.prompts.turns import (
    AnswerTurn,
    Entry,
    group_turns,
    has_results,
    split_system,
    user_text,
    without_old_calls,
)

NAMES = NameRule(r"\w.\-", 128)
"""No template has a rule of its own; these are the characters that no family's form of a call uses for itself."""

PYTHON_NAMES = NameRule(r"\w.", 128, first=r"^\W\d")
"""Names as Python takes them, for families that write calls in its form."""

_FORM = (
    "Answer with one JSON value that fits this JSON Schema, and with nothing else: no words around it and no code "
    "fence.\n{schema}"
)


class PromptDialect(Struct, frozen=True, dict=True):  # it keeps what it has worked out
    """How one family of models is asked with a text, and answers with one; see `Dialect`.

    Attributes:
        syntax: How the family writes its answers.
        template: How it lays out a conversation.
        today: The date that a template mentions, if it mentions one.
        names: Which names of tools it can write.
    """

    name: str
    syntax: Syntax
    template: Template
    today: date | None = None
    names: NameRule = NAMES

    @property
    def stops(self) -> tuple[str, ...]:
        """The marks that end an answer; a server stops at them."""
        return self.template.stops or self.syntax.ends

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every control token of the family, longest first."""
        every = {*self.syntax.tokens, *self.template.marks}
        return tuple(sorted(every, key=lambda token: (-len(token), token)))

    @property
    def writes_reasoning(self) -> bool:
        """Whether the family has a form for reasoning."""
        syntax = self.syntax
        return bool(syntax.reasoning or (syntax.channels and syntax.channels.reasoning))

    @property
    def writes_keys_as_tags(self) -> bool:
        """Whether the name of an argument is written in brackets of its own, `<name>`."""
        return any(
            isinstance(each, ParameterCalls) and each.parameter.opens.endswith("<")
            for each in self.syntax.formats
        )

    def on(self, today: date) -> PromptDialect:
        """Return this dialect, telling that date."""
        return replace(self, today=today)

    # ------------------------------------------------------------------ writing

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> str:
        """Return the prompt, to the last character, with the beginning of the answer.

        `tool_choice="none"` leaves the tools out. `required` and the name of a tool open the call in the prompt, as far
        as its beginning is certain (`opening`), so that the model can only go on with it. A form for the answer
        (`output`) is described at the end of the system message.

        Raises:
            ConfigError: The family has no form for what the conversation holds.
        """
        options = options or Options()
        refuse_effort(self.name, options)
        if options.tool_choice == "none":
            tools = ()
        else:
            tools = writing.as_collection(tools)
        names = writing.name_map(tools, self.names)
        writer = _PromptWriter(self, names, tools)
        opening = writer.opening(conversation_of(messages), options)
        return "".join((self.template.bos, *opening))

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> str:
        """Return the text that carries the results back to the model, in the order of the calls."""
        writer = _PromptWriter(self, writing.name_map((), self.names), ())
        return writer.results(
            calls, writing.in_call_order(calls, results), self._ids(calls)
        )

    def call_opening(
        self, tools: Iterable[ToolLike] | None = None, options: Options | None = None
    ) -> str:
        """Return the beginning of the call that the options demand, which a prompt with these options ends with."""
        choice = (options or Options()).tool_choice
        tools = writing.as_collection(tools)
        if choice in ("auto", "none") or not tools:
            return ""
        wanted = {tool.name for tool in tools if choice in ("required", tool.name)}
        if not wanted:
            raise ConfigError(
                f"tool_choice names {choice!r}, which is none of the tools"
            )
        names = writing.name_map(tools, self.names)
        # What all calls that are welcome begin with. The two of each differ where an id or the arguments begin.
        prefix = _common_prefix(
            [
                self.encode_answer(
                    Turn(calls=[ToolCall(id, names.to_wire(name), arguments)])
                )
                for name in sorted(wanted)
                for id, arguments in (("0", "{}"), ("1", '{"a": 1}'))
            ]
        )
        # A model goes on best at the end of a word: its tokens hold the space and the bracket before the next one.
        if len(wanted) == 1:
            return prefix.rstrip(' \n{<"')
        return prefix.rstrip(" \n")

    def answer_opening(
        self, tools: Iterable[ToolLike] | None = None, options: Options | None = None
    ) -> str:
        """Return what a prompt with these options already holds of the answer; see `find_opening`.

        A call that is opened comes without any thought before it.
        """
        opening = self.call_opening(tools, options)
        if opening:
            return self.template.thoughtless + opening
        return self.template.opens

    def find_opening(self, prompt: str) -> str:
        """Return what a prompt already holds of the answer: the mark of its reasoning, or of a call."""
        template = self.template
        ends = (
            template.answer or template.assistant[0],
            template.user[1],
            template.result[1] + template.results[1],
        )
        start = max(
            (
                prompt.rfind(each) + len(each)
                for each in ends
                if each.strip() and each in prompt
            ),
            default=len(prompt),
        )
        return prompt[start:]

    def count_answers(self, prompt: str) -> int:
        """Return how many answers of the model a prompt holds, the one to come not counted."""
        template = self.template
        opens, closes = template.assistant
        if not opens:
            return prompt.count(closes)
        count = prompt.count(opens)
        # an answer that goes on after results has no opening of its own
        if template.after_results is not None:
            result = template.result[0].partition("{")[0]
            count += prompt.count(template.results[0] + result)
            closes = template.result[1] + template.results[1]
            # Not after a result that another one follows, nor after results without an answer.
            for other in (result, template.user[0]):
                count -= prompt.count(closes + other)
        return count - 1

    def answer(
        self,
        turn: Turn,
        tools: Iterable[ToolLike] | None = None,
        *,
        opened: str | None = None,
    ) -> str:
        """Return the text with which a model of this family goes on after a prompt, with the mark that ends it.

        What the prompt has opened is not written again, and reasoning that it has opened is closed.

        Args:
            opened: See `find_opening`; what every prompt of the family opens if left out.
        """
        names = writing.name_map(tools, self.names)
        ids = self._ids(turn.calls)
        calls = [
            replace(call, id=ids.get(call.id, call.id), name=names.to_wire(call.name))
            for call in turn.calls
        ]
        written = self.encode_answer(
            replace(turn, calls=calls), self._describe_tools(tools, names) or ()
        )
        opened = (self.template.opens if opened is None else opened).removeprefix(
            self.template.thoughtless
        )
        reasoning = self.syntax.reasoning
        if written.startswith(opened):
            written = written.removeprefix(opened)
        elif reasoning and opened.strip() == reasoning.opens:
            is_over = written.startswith((reasoning.closes, *reasoning.ended_by))
            if not is_over:
                written = reasoning.closes + reasoning.after + written
        return written + next(iter(self.stops), "")

    def encode_answer(self, turn: Turn, tools: Sequence[Described] = ()) -> str:
        """Return the text of an answer whose calls are named as the model names them."""
        return texts.write_answer(self.syntax, turn, tools)

    def _ids(self, calls: Iterable[ToolCall]) -> Mapping[str, str]:
        if self.template.ids:
            return self.template.ids(calls)
        return {call.id: call.id for call in calls}

    def _describe_tools(
        self, tools: Iterable[ToolLike] | None, names: NameMap
    ) -> Sequence[Described] | None:
        """Return the tools as the prompt describes them: under the model's names for them, without any token."""
        if tools is None:
            return None
        tools = writing.as_collection(tools)
        described: Sequence[Described] = compute_once(
            tools,
            (self.names, self.tokens),
            lambda: [describe_tool(tool, names, self.tokens) for tool in tools],
        )
        return described

    # ------------------------------------------------------------------ reading

    def decode(
        self,
        body: Json | bytes,
        tools: Iterable[ToolLike] | None = None,
        *,
        opened: str = "",
        finish: Finish | None = None,
    ) -> Turn:
        """Return the turn of a whole answer.

        Args:
            opened: What the prompt already held of the answer; see `find_opening`.
            finish: How the server says that the model ended, if it says so.
        """
        stream = self.stream(tools, opened=opened)
        stream.feed(body if isinstance(body, (str, bytes)) else _completion_text(body))
        return stream.close(finish)

    def stream(
        self, tools: Iterable[ToolLike] | None = None, *, opened: str = ""
    ) -> PromptStream:
        """Return a reader for one answer on its way."""
        if tools is None:
            offered = None
        else:
            offered = writing.as_collection(tools)
        names = writing.name_map(offered, self.names)
        return PromptStream(
            texts.make_reader(
                self.syntax, self._describe_tools(offered, names), opened=opened
            ),
            names,
        )


class PromptStream:
    """One answer of an open model on its way; see `DialectStream`."""

    def __init__(self, reader: TextReader, names: NameMap) -> None:
        self._reader = reader
        self._names = names
        self._bytes = b""
        self._half = ""  # half a character; the next piece may bring the other half
        self._characters = received.WholeDeltas()

    def feed(self, chunk: str | bytes) -> list[Delta]:
        """Take the next piece of text; of bytes, perhaps with a character cut in two."""
        return self._characters.take(
            [
                self._rename(delta)
                for delta in self._reader.feed(self._decode_chunk(chunk))
            ]
        )

    def close(self, finish: Finish | None = None) -> Turn:
        """Return the whole turn. A call that breaks off is no clean end, whatever the server says."""
        if self._bytes or self._half:
            self._reader.feed(self._half + self._bytes.decode("utf-8", "replace"))
            self._bytes = b""
            self._half = ""
        turn = self._reader.close(finish)
        calls = [
            replace(call, name=self._names.from_wire(call.name)) for call in turn.calls
        ]
        return received.whole_turn(
            replace(turn, calls=calls) if calls != turn.calls else turn
        )

    def _rename(self, delta: Delta) -> Delta:
        if isinstance(delta, ArgumentsDelta):
            return replace(delta, name=self._names.from_wire(delta.name))
        return delta

    def _decode_chunk(self, chunk: str | bytes) -> str:
        if isinstance(chunk, str):
            if chunk.isascii() and not self._half:
                return chunk
            text = received.join_halves(self._half + chunk)
            self._half = received.first_half_at_end(text)
            return text.removesuffix(self._half)
        whole = self._bytes + chunk
        for cut in range(min(4, len(whole) + 1)):
            try:
                text = whole[: len(whole) - cut].decode()
            except UnicodeDecodeError:
                continue
            self._bytes = whole[len(whole) - cut :]
            return text
        self._bytes = b""
        return whole.decode("utf-8", "replace")


def _common_prefix(written: Sequence[str]) -> str:
    """Return what all of these begin with."""
    # the two that differ soonest
    first = min(written)
    last = max(written)
    same = next(
        (
            place
            for place, (a, b) in enumerate(zip(first, last, strict=False))
            if a != b
        ),
        len(first),
    )
    return first[:same]


# ---------------------------------------------------------------------- a conversation


class _PromptWriter:
    """Writes one conversation."""

    def __init__(
        self, dialect: PromptDialect, names: NameMap, tools: Iterable[ToolLike]
    ) -> None:
        self._dialect = dialect
        self._template = dialect.template
        self._names = names
        self._own_tools = tools
        self._tools = dialect._describe_tools(tools, names) or ()

    def opening(self, messages: Sequence[Message], options: Options) -> list[str]:
        """Return the texts of a whole prompt but for its first token, with what opens the answer."""
        systems, rest = split_system(messages)
        if options.output:
            systems.append(_FORM.format(schema=as_json(dict(options.output.schema))))
        if systems:
            system = self._safe("\n\n".join(systems))
        else:
            system = None
        head = self._template.head(Opening(system, self._tools, self._dialect.today))
        entries = group_turns(rest, self._template)
        if self._template.forgets_calls:
            entries = without_old_calls(entries)
        return [
            head.text,
            *self._turns(entries, head),
            self._answer_mark(entries, options),
        ]

    def results(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[ToolResult],
        ids: Mapping[str, str],
        *,
        last: bool = True,
    ) -> str:
        """Return the results of one answer; `last` says whether they end the conversation."""
        if not results:
            return ""
        names = {call.id: call.name for call in calls}
        each = [
            self._result(result, names.get(result.call_id, result.name), ids)
            for result in results
        ]
        opens, closes = self._template.results
        if last and self._template.results_last is not None:
            closes = self._template.results_last
        return self._template.between.join(each).join((opens, closes))

    def _turns(self, entries: Sequence[Entry], head: PromptHead) -> Iterable[str]:
        template = self._template
        first_user, last_user = _user_places(entries)
        ids = self._dialect._ids(_list_calls(entries))
        in_last = head.in_last
        if last_user == len(entries) - 1:
            in_last += head.in_question
        if last_user < 0:  # what belongs in a question has to go somewhere
            lead = (head.in_first + in_last).rstrip()
            yield head.before_last
            if lead:
                yield lead.join(template.user)
        keeps_thoughts = self._keeps_thoughts(entries)
        for place, entry in enumerate(entries):
            follows_results = has_results(entries[:place])
            match entry:
                case UserMessage():
                    lead = ""
                    if place == first_user:
                        lead += head.in_first
                    if place == last_user:
                        lead += in_last
                        yield head.before_last
                    opens, closes = template.user
                    if follows_results and template.user_after_results is not None:
                        opens = template.user_after_results
                    yield (lead + self._safe(user_text(entry))).join((opens, closes))
                case SystemMessage(text=text):
                    yield self._safe(text).join(template.system or template.user)
                case AnswerTurn(turn=turn, results=results):
                    is_recent = keeps_thoughts or place > last_user
                    is_last = place == len(entries) - 1
                    yield self._answer(
                        turn, ids, recent=is_recent, goes_on=follows_results
                    )
                    yield self.results(turn.calls, results, ids, last=is_last)

    def _answer(
        self, turn: Turn, ids: Mapping[str, str], *, recent: bool, goes_on: bool
    ) -> str:
        template = self._template
        if turn.calls and template.refuses:
            raise ConfigError(
                f"{self._dialect.name} cannot write a model's calls: {template.refuses}"
            )
        text = ""
        if not (turn.calls and template.calls_alone):
            text = self._safe(turn.text or turn.refusal)
        reasoning = ""
        if recent and self._tells_thoughts(turn):
            reasoning = self._safe(turn.reasoning)
        if reasoning:
            thought = template.reasoning_lead
        else:
            thought = self._thoughtless(recent=recent)
            if turn.calls and not text:
                thought += template.thoughtless_calls
        opens = self._answer_opening(goes_on=goes_on)
        if reasoning or not (goes_on and template.continues_bare):
            opens += thought
        closes = template.assistant[1]
        if turn.calls and template.ends_calls is not None:
            closes = template.ends_calls
        body = self._answer_body(text, reasoning, self._safe_calls(turn.calls, ids))
        return opens + body + closes

    def _thoughtless(self, *, recent: bool) -> str:
        """Return the text that opens an answer without reasoning."""
        template = self._template
        if recent and template.thoughtless_now is not None:
            return template.thoughtless_now
        return template.thoughtless

    def _answer_opening(self, *, goes_on: bool) -> str:
        """Return the mark of an answer's beginning."""
        template = self._template
        if goes_on and template.after_results is not None:
            return template.after_results
        return template.assistant[0]

    def _tells_thoughts(self, turn: Turn) -> bool:
        """Return whether the family has a place for the reasoning of this answer."""
        thinks = self._template.thinks
        if thinks == "never" or (thinks == "with calls" and not turn.calls):
            return False
        return self._dialect.writes_reasoning

    def _keeps_thoughts(self, entries: Sequence[Entry]) -> bool:
        """Return whether the reasoning of every answer is written, and not only that since the last question."""
        if self._template.thinks == "with tools":
            return bool(self._tools) or any(
                isinstance(each, AnswerTurn) and bool(each.results) for each in entries
            )
        return self._template.thinks in ("always", "with calls")

    def _answer_body(self, text: str, reasoning: str, calls: Sequence[ToolCall]) -> str:
        if text:
            text = self._template.lead + text
            if calls:
                text += self._template.before_calls
        elif calls:
            text = self._template.calls_lead
        if self._template.calls_bare:
            turns = [Turn(text, reasoning), Turn(calls=calls)]
        else:
            turns = [Turn(text, reasoning, calls)]
        return "".join(self._dialect.encode_answer(turn, self._tools) for turn in turns)

    def _safe_calls(
        self, calls: Iterable[ToolCall], ids: Mapping[str, str]
    ) -> list[ToolCall]:
        safe: list[ToolCall] = []
        for call in calls:
            arguments = self._safe_json(writing.as_history(call.arguments))
            safe.append(
                ToolCall(ids[call.id], self._names.to_wire(call.name), arguments)
            )
        return safe

    def _result(self, result: ToolResult, name: str, ids: Mapping[str, str]) -> str:
        opens, closes = self._template.result
        id = self._safe(ids.get(result.call_id, result.call_id))
        opens = opens.replace("{name}", self._names.to_wire(name)).replace("{id}", id)
        closes = closes.replace("{id}", id)
        # Break tokens last: a template that reads JSON and writes it again undoes escapes that hide a token.
        return (
            opens
            + self._safe(self._template.format_result(writing.result_text(result)))
            + closes
        )

    def _answer_mark(self, entries: Sequence[Entry], options: Options) -> str:
        template = self._template
        if template.answer is None:
            answer = template.assistant[0]
        else:
            answer = template.answer
        goes_on = has_results(entries)
        if goes_on and template.after_results is not None:
            answer = template.after_results
        if goes_on and template.continues_bare:
            return answer + self._dialect.call_opening(self._own_tools, options)
        return answer + self._dialect.answer_opening(self._own_tools, options)

    def _safe(self, text: str) -> str:
        return break_tokens(text, self._dialect.tokens)

    def _safe_json(self, text: str) -> str:
        """Return an object's text, as it is where nothing in it is a token, even behind an escape (`\\u003c/s>`)."""
        if "\\" in text or "<" in text or self._dialect.writes_keys_as_tags:
            value = json.loads(text)
            safe = break_tokens_in(
                value,
                self._dialect.tokens,
                in_brackets=self._dialect.writes_keys_as_tags,
            )
            if safe != value:
                text = as_json(safe)
        return self._safe(text)


def _user_places(entries: Sequence[Entry]) -> tuple[int, int]:
    """Return where the first and the last turn of the user are; -1 without any, so that all answers are recent."""
    places = [
        place for place, entry in enumerate(entries) if isinstance(entry, UserMessage)
    ]
    if places:
        return places[0], places[-1]
    return -1, -1


def _list_calls(entries: Iterable[Entry]) -> Iterator[ToolCall]:
    for entry in entries:
        if isinstance(entry, AnswerTurn):
            yield from entry.turn.calls


def _completion_text(body: Json) -> str:
    """Return what the model wrote of a completion endpoint's whole answer.

    Raises:
        ModelError: It is no such answer: read as text, its calls would be passed over in silence.
    """
    answer = json_bodies.mapping(body, "the body")
    choices = answer.get("choices")
    if choices:
        choice = json_bodies.mapping(
            json_bodies.items(choices, "`choices`")[0], "`choices[0]`"
        )
        return json_bodies.string(choice.get("text"), "the text")
    return json_bodies.string(answer.get("response"), "`response`")
