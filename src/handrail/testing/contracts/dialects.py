"""What every wire dialect must hold to. A dialect's test class inherits `DialectContract` and names its dialect.

class TestOpenAIChat(ServerContract):
    dialect = openai_chat.DIALECT

Of a dialect whose provider's side nobody speaks, `DialectContract` asks for `RICH` as the provider spells it.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import process_time
from typing import Any, ClassVar, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail import calls, messages
from handrail.calls import ToolCall, ToolResult
from handrail.dialects import DialectStream, Envelope, ServerDialect, WireDialect
from handrail.errors import Failure, Json, ModelError
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    Options,
    ReasoningDelta,
    TextDelta,
    Turn,
    Usage,
)
from handrail.parsing.jsontext import parse
from handrail.ports import Described

# One test method serves several dialects' classes, which hypothesis would take for a mistake.
shared = settings(
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    deadline=None,
)

NAMES = ("get_weather", "user_info.get", "user_info_get", "查询天气", "refund")
TOOLS = [
    Described(
        name,
        f"Does {name}.",
        {"type": "object", "properties": {"city": {"type": "string"}}},
    )
    for name in NAMES
]

RICH = Turn(
    text="Ich sehe nach — 稍等 🌦",
    reasoning="Two cities, so two calls.",
    calls=(
        ToolCall(
            "call_a",
            "user_info.get",
            '{"city": "北京", "note": "a \\"quoted\\" }{ text\\n"}',
        ),
        ToolCall("call_b", "refund", "{}"),
        ToolCall("call_c", "查询天气", '{"city": "Zürich"}'),
    ),
    finish="calls",
    usage=Usage(120, 45, 100, 12),
)


def arguments() -> st.SearchStrategy[str]:
    """JSON text as models write it, in both spellings of characters outside ASCII."""
    values = st.dictionaries(
        st.text(max_size=6),
        st.text(max_size=12) | st.integers() | st.none(),
        max_size=3,
    )
    return st.tuples(values, st.booleans()).map(
        lambda pair: json.dumps(pair[0], ensure_ascii=pair[1])
    )


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Turns that a provider could send."""
    texts = draw(st.lists(arguments(), max_size=3))
    names = [draw(st.sampled_from(NAMES)) for _ in texts]
    spoken = tuple(
        ToolCall(f"call_{n}", name, text)
        for n, (name, text) in enumerate(zip(names, texts, strict=True))
    )
    read, written = draw(st.tuples(*[st.integers(0, 10**6)] * 2))
    # Some providers count what came from their cache apart, so it cannot be more than the whole.
    usage = Usage(
        read, written, draw(st.integers(0, read)), draw(st.integers(0, written))
    )
    finish: Finish = draw(
        st.sampled_from(
            ["calls", "stop", "length"] if spoken else ["stop", "length", "refused"]
        )
    )
    return Turn(
        draw(st.text(max_size=30)), draw(st.text(max_size=20)), spoken, finish, usage
    )


def in_halves(text: str) -> str:
    """Return the text as a program holds it that counts UTF-16: characters beyond the first 65,536 are two halves."""
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(
        chr(int.from_bytes(units[at : at + 2], "little"))
        for at in range(0, len(units), 2)
    )


def escaped(text: str) -> str:
    """Return JSON text with the halves of characters as it can carry them: escaped."""
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


PIECES_OF_CHARACTERS = st.text(
    st.sampled_from(["\ud83d", "\ude00", "😀", "a", "\\", "é"]), max_size=8
)


Place: TypeAlias = tuple[str | int, ...]
"""The path to a place in a JSON value."""


def places(value: object, here: Place = ()) -> list[Place]:
    """Return the path to every place in a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        here,
        *(place for key, each in inner for place in places(each, (*here, key))),
    ]


def with_other(value: object, place: Place, other: object) -> object:
    """Return the JSON value with `other` at that place."""
    if not place:
        return other
    assert isinstance(value, dict | list)
    copy: Any = value.copy()
    copy[place[0]] = with_other(copy[place[0]], place[1:], other)
    return copy


ODD: st.SearchStrategy[object] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        7,
        1e300,
        "",
        "odd",
        [],
        ["odd"],
        [None],
        [[]],
        {},
        {"odd": 1},
        {"text": 1},
    ]
)


def in_pieces(whole: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return `whole` cut at the given offsets."""
    edges = [0, *sorted({cut % (len(whole) + 1) for cut in cuts}), len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]


def read(
    stream: DialectStream, pieces: Sequence[str | bytes]
) -> tuple[list[Delta], Turn | ModelError]:
    """Feed all pieces as a transport would, and return all that was said."""
    deltas: list[Delta] = []
    try:
        for piece in pieces:
            deltas += stream.feed(piece)
        return deltas, stream.close()
    except ModelError as error:
        return deltas, error


def joined(
    deltas: Sequence[Delta], kind: type[TextDelta] | type[ReasoningDelta]
) -> str:
    """Return the text of all deltas of a kind."""
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def calls_told(deltas: Sequence[Delta]) -> dict[int, tuple[str, str]]:
    """Return name and arguments of each call as its deltas told them, by its index."""
    told: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if isinstance(delta, ArgumentsDelta):
            told[delta.index] = (
                delta.name,
                told.get(delta.index, ("", ""))[1] + delta.text,
            )
    return told


def check_growth(work: Callable[[int], Callable[[], Any]], size: int) -> None:
    """Check that the work grows with its size and no faster: ten times as much takes ten times as long, not a hundred.

    Args:
        work: Makes ready what is to be done at a size, and returns what does it.
    """
    small = min(_seconds(work(size // 10)) for _ in range(3))
    bound = 30 * max(small, 0.002)
    # A busy machine makes one of three slow, and never one of them fast.
    tries: list[float] = []
    while len(tries) < 3 and (not tries or min(tries) >= bound):
        tries.append(_seconds(work(size)))
    assert min(tries) < bound, (small, tries)


def _seconds(done: Callable[[], Any]) -> float:
    gc.disable()  # whose work grows with all that is alive
    try:
        begun = process_time()
        done()
        return process_time() - begun
    finally:
        gc.enable()


TOLD = [
    messages.SystemMessage("Be brief."),
    messages.UserMessage("Refund order 7 — 谢谢"),
    messages.AssistantMessage(
        Turn("Right.", calls=[calls.ToolCall("call_b", "refund", '{"id": 7}')])
    ),
    messages.ToolMessage(ToolResult("call_b", "refund", value="done", text="done")),
]


class DialectContract:
    """The laws of what our client reads. They are tried on `RICH` as the provider spells it, whole and as events."""

    dialect: ClassVar[WireDialect]

    last: ClassVar[bytes] = b"finish"
    """What the event holds that says how a streamed answer ended; without it an answer has no good end."""

    def body(self) -> dict[str, Json]:
        """Return `RICH` as the provider sends it whole."""
        raise NotImplementedError

    def events(self) -> str:
        """Return `RICH` as the provider streams it; a character's halves may come in two events."""
        raise NotImplementedError

    def sayable(self, turn: Turn) -> Turn:
        """Return the turn as the wire can say it."""
        return turn

    # -- whole answers -------------------------------------------------------------------------------------------------

    def test_a_body_may_come_as_bytes_as_text_or_as_an_object(self):
        body = self.body()
        text = json.dumps(body, ensure_ascii=False)
        rich = self.sayable(RICH)
        assert {
            self.dialect.decode(form, TOOLS) == rich
            for form in (body, text, text.encode())
        } == {True}

    @pytest.mark.parametrize("body", [
        b"", "", "null", "[]", "7", '"text"', "{}", "{", b"\xff\xfe\x00", "<html>502</html>", "[" * 100_000,
        '{"choices": {}}', '{"content": 3}', '{"candidates": 1}', '{"output": "x"}',
    ])  # fmt: skip
    def test_garbage_is_told_in_one_sentence(self, body):
        with pytest.raises(ModelError) as caught:
            self.dialect.decode(body)
        assert caught.value.code == "unreadable"
        assert len(str(caught.value).splitlines()) == 1

    @shared
    @given(data=st.data())
    def test_an_odd_value_anywhere_in_a_body_gives_a_turn_or_a_model_error(self, data):
        body = self.body()
        body = with_other(
            body, data.draw(st.sampled_from(places(body))), data.draw(ODD)
        )
        try:
            assert isinstance(self.dialect.decode(body, TOOLS), Turn)
        except ModelError as error:
            assert str(error)

    @pytest.mark.parametrize("half", ["\ud83d", "\ude00"])
    def test_half_a_character_in_a_whole_answer_is_no_question_mark_in_a_call(
        self, half
    ):
        half = escaped(half)
        body = json.dumps(self.body(), ensure_ascii=False)
        body = body.replace(RICH.text, f"a{half}").replace("Zürich", half)
        turn = self.dialect.decode(body, TOOLS)
        assert turn.text == "a?"
        assert isinstance(parse(turn.calls[-1].arguments), Failure)
        json.dumps(
            [turn.raw, *(call.arguments for call in turn.calls)], ensure_ascii=False
        ).encode()

    # -- streams -------------------------------------------------------------------------------------------------------

    def test_a_stream_reads_the_same_cut_at_every_byte(self):
        whole = self.events().encode()
        expected = read(self.dialect.stream(TOOLS), [whole])
        assert joined(expected[0], TextDelta) == RICH.text
        assert (
            read(self.dialect.stream(TOOLS), in_pieces(whole, range(len(whole))))
            == expected
        )
        for cut in range(len(whole) + 1):
            assert (
                read(self.dialect.stream(TOOLS), [whole[:cut], whole[cut:]]) == expected
            )

    @shared
    @given(cut=st.integers(0, 10**6))
    def test_a_stream_that_breaks_off_has_no_good_end(self, cut):
        whole = self.events().encode()
        cut = cut % (whole.rindex(self.last) if self.last in whole else len(whole))
        deltas, turn = read(self.dialect.stream(TOOLS), [whole[:cut]])
        if isinstance(turn, ModelError):
            assert deltas == []
        else:
            assert turn.finish == "error"
            assert RICH.text.startswith(turn.text.removesuffix("?"))
            assert turn.text.startswith(joined(deltas, TextDelta))

    @shared
    @given(data=st.data())
    def test_an_odd_value_anywhere_in_a_stream_gives_a_turn_or_a_model_error(
        self, data
    ):
        lines = self.events().split("\n")
        at = data.draw(
            st.sampled_from(
                [n for n, line in enumerate(lines) if line.startswith("data: {")]
            )
        )
        event = json.loads(lines[at].removeprefix("data: "))
        odd = with_other(
            event, data.draw(st.sampled_from(places(event))), data.draw(ODD)
        )
        lines[at] = f"data: {json.dumps(odd)}"
        _, outcome = read(self.dialect.stream(TOOLS), ["\n".join(lines)])
        assert isinstance(outcome, (Turn, ModelError))

    def test_closing_twice_gives_the_same_turn(self):
        stream = self.dialect.stream(TOOLS)
        stream.feed(self.events())
        assert stream.close() == stream.close() == self.sayable(RICH)

    def test_an_empty_stream_is_an_error_worth_another_try(self):
        with pytest.raises(ModelError) as caught:
            self.dialect.stream().close()
        assert caught.value.retryable

    # -- going back ----------------------------------------------------------------------------------------------------

    def test_results_go_back_in_the_order_of_the_calls(self):
        results = [
            ToolResult(call.id, call.name, text=f"result of {call.id}")
            for call in reversed(RICH.calls)
        ]
        told = json.dumps(self.dialect.encode_results(RICH.calls, results))
        places = [told.index(f"result of {call.id}") for call in RICH.calls]
        assert places == sorted(places)

    def test_a_missing_result_is_a_mistake_of_ours(self):
        with pytest.raises(ValueError, match="3 calls have 0 results"):
            self.dialect.encode_results(RICH.calls, [])

    def test_a_conversation_survives_the_request(self):
        body = json.loads(json.dumps(self.dialect.encode_request(TOLD, TOOLS)))
        heard = self.dialect.decode_conversation(body)
        assert [type(each) for each in heard] == [type(each) for each in TOLD]
        assert [*heard[2].turn.calls] == TOLD[2].turn.calls
        assert heard[3].result.text == "done"


class ServerContract(DialectContract):
    """The laws of a dialect whose provider's side we speak too: whatever it tells is heard."""

    texts_survive: ClassVar[bool] = True
    """Whether a whole answer holds arguments as text. Where they are an object, their spelling is ours."""

    stops_beside_calls: ClassVar[bool] = True
    """Whether the wire can say that an answer with calls ended by itself; elsewhere such an answer wants its calls."""

    def sayable(self, turn: Turn) -> Turn:
        """Return the turn as the wire can say it."""
        wants = turn.finish == "stop" and turn.calls and not self.stops_beside_calls
        return replace(turn, finish="calls") if wants else turn

    def survives(self, turn: Turn) -> Turn:
        """Return what a turn is after a whole answer carried it."""
        if self.texts_survive:
            return turn
        spelled = [
            replace(
                call,
                arguments=json.dumps(json.loads(call.arguments), ensure_ascii=False),
            )
            for call in turn.calls
        ]
        return replace(turn, calls=tuple(spelled))

    def body(self) -> dict[str, Json]:
        return self.encoded(RICH)

    def events(self) -> str:
        return self.streamed(RICH)

    def encoded(self, turn: Turn) -> dict[str, Json]:
        assert isinstance(self.dialect, ServerDialect)
        return self.dialect.encode_turn(
            turn, Envelope("m", "answer_1", 1_700_000_000), TOOLS
        )

    def streamed(self, turn: Turn, piece_chars: int = 12) -> str:
        assert isinstance(self.dialect, ServerDialect)
        return "".join(
            self.dialect.encode_stream(
                turn,
                Envelope("m", "answer_1", 1_700_000_000),
                TOOLS,
                piece_chars=piece_chars,
            )
        )

    @shared
    @given(turn=turns())
    def test_a_turn_survives_the_wire(self, turn):
        turn = self.sayable(turn)
        assert self.dialect.decode(self.encoded(turn), TOOLS) == self.survives(turn)

    def test_what_is_written_to_the_cache_is_counted_where_the_provider_counts_it(self):
        usage = Usage(120, 45, 60, 0, 50)
        turn = Turn("Hi", usage=usage)
        assert self.dialect.decode(self.encoded(turn), TOOLS).usage == usage
        assert read(self.dialect.stream(TOOLS), [self.streamed(turn)])[1].usage == usage

    @shared
    @given(turn=turns(), piece_chars=st.integers(1, 40))
    def test_a_turn_survives_the_stream(self, turn, piece_chars):
        turn = self.sayable(turn)
        deltas, read_turn = read(
            self.dialect.stream(TOOLS), [self.streamed(turn, piece_chars)]
        )
        assert read_turn == turn
        assert joined(deltas, TextDelta) == turn.text
        assert joined(deltas, ReasoningDelta) == turn.reasoning
        assert calls_told(deltas) == {
            n: (call.name, call.arguments) for n, call in enumerate(turn.calls)
        }

    @shared
    @given(turn=turns(), cuts=st.lists(st.integers(0, 10**6), max_size=30))
    def test_a_stream_reads_the_same_however_it_is_cut(self, turn, cuts):
        whole = self.streamed(turn).encode()
        assert read(self.dialect.stream(TOOLS), in_pieces(whole, cuts)) == read(
            self.dialect.stream(TOOLS), [whole]
        )

    @pytest.mark.parametrize("piece_chars", [1, 2, 3, 40])
    def test_a_character_whose_halves_came_in_two_pieces_is_whole_again(
        self, piece_chars
    ):
        said = Turn(
            "a 😀 b", "🌦", (ToolCall("call_a", "refund", '{"s": "😀🌦"}'),), "calls"
        )
        halves = [
            replace(call, arguments=in_halves(call.arguments)) for call in said.calls
        ]
        cut = replace(
            said,
            text=in_halves(said.text),
            reasoning=in_halves(said.reasoning),
            calls=halves,
        )
        deltas, turn = read(
            self.dialect.stream(TOOLS), [escaped(self.streamed(cut, piece_chars))]
        )
        assert turn == said
        assert (joined(deltas, TextDelta), joined(deltas, ReasoningDelta)) == (
            said.text,
            said.reasoning,
        )
        assert calls_told(deltas) == {
            n: (call.name, call.arguments) for n, call in enumerate(said.calls)
        }
        assert "INVALID_JSON" not in json.dumps(turn.raw)

    @shared
    @given(
        text=PIECES_OF_CHARACTERS,
        odd=PIECES_OF_CHARACTERS,
        piece_chars=st.integers(1, 20),
    )
    def test_half_a_character_is_the_same_however_a_stream_is_cut_and_refused_in_a_call(
        self, text, odd, piece_chars
    ):
        arguments = f'{{"s": "{odd}"}}'
        turn = Turn(
            f"a{text}.", "", (ToolCall("call_a", "refund", arguments),), "calls"
        )
        sent = [escaped(self.streamed(turn, chars)) for chars in (piece_chars, 1000)]
        (deltas, in_small_pieces), (_, whole) = (
            read(self.dialect.stream(TOOLS), [each]) for each in sent
        )
        assert in_small_pieces == whole
        assert joined(deltas, TextDelta) == whole.text
        assert calls_told(deltas) == {0: ("refund", whole.calls[0].arguments)}
        whole.text.encode()  # a person can be shown it
        whole.calls[0].arguments.encode()
        if "\ufffd" in odd.encode("utf-16-le", "surrogatepass").decode(
            "utf-16-le", "replace"
        ):
            assert isinstance(
                parse(whole.calls[0].arguments, allow_repair=True, lossy=True), Failure
            )

    def test_what_a_client_asks_is_heard(self):
        assert isinstance(self.dialect, ServerDialect)
        options = Options(
            model="m",
            tool_choice="refund",
            max_tokens=100,
            temperature=0.5,
            stream=True,
        )
        body = json.loads(json.dumps(self.dialect.encode_request(TOLD, TOOLS, options)))
        _, tools, heard_options = self.dialect.decode_request(body)
        assert heard_options == options
        assert [tool.parameters for tool in tools] == [
            tool.parameters for tool in TOOLS
        ]
