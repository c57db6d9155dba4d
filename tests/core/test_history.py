"""Conversations made fit to send, and kept within a window."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import handrail as hr
from handrail.calls import ToolCall, ToolResult
from handrail.core import history
from handrail.core.history import (
    Window,
    as_history,
    estimate_tokens,
    fold,
    sanitize,
    to_fold,
)
from handrail.errors import Code
from handrail.events import ContextFolded, HistoryMended
from handrail.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.stores.memory import MemoryStore
from handrail.testing import WIRES, ScriptedModel, ScriptedServer, call


def asked(*calls, text="", **more):
    made = [
        each if isinstance(each, ToolCall) else ToolCall(each, "look_up")
        for each in calls
    ]
    return AssistantMessage(
        Turn(text, calls=made, finish="calls" if calls else "stop", **more)
    )


def told(id, text="ok"):
    return ToolMessage(ToolResult(id, "look_up", value=text, text=text))


ASK, MORE, SYSTEM = UserMessage("?"), UserMessage("more"), SystemMessage("Be brief.")


def shape_of(messages):
    """Roles in short, calls and results with their ids."""
    shapes = []
    for message in messages:
        match message:
            case AssistantMessage(turn=turn):
                shapes.append(("asks", *(each.id for each in turn.calls)))
            case ToolMessage(result=result):
                shapes.append(
                    (
                        "told",
                        result.call_id,
                        result.text if result.ok else str(result.failure.code),
                    )
                )
            case _:
                shapes.append(type(message).__name__[0])
    return shapes


# ---------------------------------------------------------------------- what is mended

READS = {"look_up"}.__contains__


@pytest.mark.parametrize(("messages", "fit", "notes"), [
    pytest.param([ASK, asked("a")], ["U", ("asks", "a"), ("told", "a", "CANCELLED")], 1, id="an orphan read"),
    pytest.param([ASK, asked(ToolCall("a", "pay")), MORE],
                 ["U", ("asks", "a"), ("told", "a", "IN_DOUBT"), "U"], 1, id="an orphan write"),
    pytest.param([ASK, told("a"), MORE], ["U", "U"], 1, id="an orphan result"),
    pytest.param([ASK, asked("a", "b"), told("b", "B"), told("a", "A")],
                 ["U", ("asks", "a", "b"), ("told", "a", "A"), ("told", "b", "B")], 0, id="results out of order"),
    pytest.param([ASK, asked("a"), MORE, told("a")], ["U", ("asks", "a"), ("told", "a", "ok"), "U"], 0,
                 id="a result further down"),
    pytest.param([ASK, asked("a"), told("a", "pending"), told("a", "done")],
                 ["U", ("asks", "a"), ("told", "a", "done")], 1, id="two results of one call"),
    pytest.param([asked("a"), told("a", "1"), asked("a"), told("a", "2")],
                 [("asks", "a"), ("told", "a", "1"), ("asks", "a_2"), ("told", "a_2", "2")], 1,
                 id="an id of two turns"),
    pytest.param([asked("a"), asked("a"), told("a", "2")],
                 [("asks", "a"), ("told", "a", "CANCELLED"), ("asks", "a_2"), ("told", "a_2", "2")], 2,
                 id="the later call of an id is the one that was answered"),
    pytest.param([asked("a", "a"), told("a", "1"), told("a", "2")],
                 [("asks", "a", "a_2"), ("told", "a", "1"), ("told", "a_2", "2")], 1, id="an id of two calls"),
    pytest.param([asked("a", "a_2"), told("a"), told("a_2"), asked("a"), told("a")],
                 [("asks", "a", "a_2"), ("told", "a", "ok"), ("told", "a_2", "ok"), ("asks", "a_3"),
                  ("told", "a_3", "ok")], 1, id="the next number is taken already"),
    pytest.param([asked("a"), told("a"), asked("a"), told("a"), asked("a_2"), told("a_2")],
                 [("asks", "a"), ("told", "a", "ok"), ("asks", "a_3"), ("told", "a_3", "ok"), ("asks", "a_2"),
                  ("told", "a_2", "ok")], 1, id="the next number is a later call's own"),
    pytest.param([ASK, asked(), MORE], ["U", "U"], 1, id="an empty answer"),
    pytest.param([ASK, asked(text="Yes."), MORE], ["U", ("asks",), "U"], 0, id="an answer"),
])  # fmt: skip
def test_a_conversation_is_made_fit_to_send(messages, fit, notes):
    made = sanitize(messages, reads=READS)
    assert shape_of(made.messages) == fit
    assert len(made.notes) == notes


def test_a_lost_call_takes_its_result_from_whoever_knows_it():
    known = {"a": ToolResult("elsewhere", "pay", value="paid", text="paid")}
    made = sanitize(
        [asked(ToolCall("a", "pay"))], find_result=lambda call: known.get(call.id)
    )
    assert shape_of(made.messages) == [("asks", "a"), ("told", "a", "paid")]


def test_what_the_model_reads_of_a_lost_call_says_what_to_do():
    texts = [
        m.result.text
        for m in sanitize([asked("a", ToolCall("b", "pay"))], reads=READS).messages[1:]
    ]
    assert "was never answered" in texts[0]
    assert "may or may not have happened" in texts[1]
    assert json.loads(texts[1])["retryable"] is False


def test_a_turn_whose_arguments_were_changed_keeps_what_the_provider_sent_beside_them():
    raw = {"role": "assistant"}
    sound, broken = asked("a", raw=raw), asked(ToolCall("b", "look_up", "{"), raw=raw)
    made = sanitize([sound, told("a"), broken, told("b")]).messages
    assert (made[0], made[2].turn.raw) == (sound, raw)
    assert made[2].turn.calls[0].arguments != "{"


SIGNED = {
    "content": [
        {"type": "thinking", "signature": "s"},
        {"id": "a", "input": {"id": "a", "x": ["a"]}},
    ]
}
UNNAMED = {"parts": [{"functionCall": {"name": "look_up"}, "thoughtSignature": "s"}]}


@pytest.mark.parametrize(("raw", "kept"), [
    (SIGNED, {"content": [SIGNED["content"][0], {"id": "a_2", "input": {"id": "a", "x": ["a"]}}]}),
    # Gemini's calls have no ids; ours are those of the turn
    (UNNAMED, UNNAMED),
    (None, None),
])  # fmt: skip
def test_a_turn_whose_ids_were_told_apart_keeps_what_the_provider_signed(raw, kept):
    later = (
        sanitize([asked("a", raw=raw), told("a"), asked("a", raw=raw), told("a")])
        .messages[2]
        .turn
    )
    assert (later.calls[0].id, later.raw) == ("a_2", kept)


def test_where_an_id_means_two_calls_of_one_turn_the_provider_s_message_is_left_out():
    assert (
        sanitize([asked("a", "a", raw=SIGNED), told("a"), told("a")])
        .messages[0]
        .turn.raw
        is None
    )


@pytest.mark.parametrize(("arguments", "goes_back"), [
    ('{"a":  1}', '{"a":  1}'),
    ("", "{}"),
    ("{'a': 1,}", '{"a":1}'),                             # one reading: as that object
    # none: as text, so that the model can see what it wrote
    ('{"a": 1', '{"INVALID_JSON": "{\\"a\\": 1"}'),
    ('Sure: {"a": 1}', '{"INVALID_JSON": "Sure: {\\"a\\": 1}"}'),  # a guess is none
    ("[1]", '{"INVALID_JSON": "[1]"}'),
    ('{"a": NaN}', '{"INVALID_JSON": "{\\"a\\": NaN}"}'),
])  # fmt: skip
def test_arguments_that_go_back_are_an_object_always(arguments, goes_back):
    assert as_history(arguments) == goes_back


# ---------------------------------------------------------------------- laws

IDS = st.sampled_from(["a", "b", "a_2", ""])
CALLS = st.builds(
    ToolCall,
    IDS,
    st.sampled_from(["look_up", "pay"]),
    st.sampled_from(["{}", "{'x': 1}", '{"x', "[]"]),
)
MESSAGES = st.lists(
    st.one_of(
        st.sampled_from([ASK, MORE, SYSTEM]),
        st.builds(told, IDS, st.sampled_from(["1", "2"])),
        st.builds(
            lambda calls, text: asked(*calls, text=text),
            st.lists(CALLS, max_size=3),
            st.sampled_from(["", "t"]),
        ),
    ),
    max_size=8,
)


@given(MESSAGES)
def test_what_is_mended_has_one_result_for_each_call_directly_after_it(messages):
    fit = list(sanitize(messages).messages)
    seen = set()
    while fit:
        message = fit.pop(0)
        assert not isinstance(message, ToolMessage)
        if isinstance(message, AssistantMessage):
            assert message.turn.calls or message.turn.text
            for each in message.turn.calls:
                assert each.id not in seen
                seen.add(each.id)
                assert isinstance(json.loads(each.arguments), dict)
            ids = [each.id for each in message.turn.calls]
            assert [fit.pop(0).result.call_id for _ in ids] == ids


@given(MESSAGES)
def test_what_is_mended_once_is_sound(messages):
    fit = sanitize(messages).messages
    again = sanitize(fit)
    assert (again.messages is fit, again.notes) == (True, ())


@given(MESSAGES)
def test_what_people_said_and_what_the_model_said_is_all_there(messages):
    def words(spoken):
        said = [
            m.turn.text if isinstance(m, AssistantMessage) else m.text
            for m in spoken
            if not isinstance(m, ToolMessage)
        ]
        return list(filter(None, said))

    assert words(sanitize(messages).messages) == words(messages)


@given(MESSAGES)
def test_a_sound_conversation_is_the_same_object(messages):
    fit = list(sanitize(messages).messages)
    assert sanitize(fit).messages is fit


# ---------------------------------------------------------------------- where it is done


def test_a_run_begins_with_a_conversation_that_is_fit_to_send_and_tells_what_was_mended(
    drive,
):
    @hr.tool(effect="read")
    def look_up() -> str:
        """Look it up."""
        return "found"

    driver, model = drive([look_up]), ScriptedModel(["never", "Done."])
    run = driver.run([ASK, asked("a"), told("b")], model=model)
    assert run.text == "Done."
    assert shape_of(model.requests[0].messages) == [
        "U",
        ("asks", "a"),
        ("told", "a", "CANCELLED"),
    ]
    assert [len(event.notes) for event in driver.told(HistoryMended)] == [2]


def test_a_killed_run_s_write_is_in_doubt_when_its_conversation_goes_on(drive):
    pay = hr.FunctionTool(lambda: "paid", name="pay", effect="write")
    model = ScriptedModel(["never", "I will look."])
    drive([pay]).run([ASK, asked(ToolCall("a", "pay"))], model=model)
    assert model.requests[0].messages[2].result.failure.code == Code.IN_DOUBT


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "openai-responses"])
def test_a_wire_sends_no_conversation_that_a_provider_would_refuse(wire):
    dialect = hr.dialect(wire)
    body = dialect.encode_request(
        [ASK, asked("a", ToolCall("b", "look_up", "{")), told("c"), MORE]
    )
    heard = dialect.decode_conversation(body)
    assert sanitize(heard).notes == ()
    assert [type(message) for message in heard] == [
        UserMessage, AssistantMessage, ToolMessage, ToolMessage, UserMessage,
    ]  # fmt: skip
    assert json.loads(heard[1].turn.calls[1].arguments) == {"INVALID_JSON": "{"}


def test_a_conversation_in_the_chat_form_is_mended_too(drive):
    spoken = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{"}}]},
    ]  # fmt: skip
    with ScriptedServer(["never", "Done."]) as server:
        assert drive([]).run(spoken, model=server.model).text == "Done."
    assert [message["role"] for message in server.requests[0]["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]


# ---------------------------------------------------------------------- kept within a window


@pytest.mark.parametrize(("text", "tokens"), [
    ("", 0),
    ("four", 1),
    ("fives", 2),                         # rounded up
    ("北京天气", 4),
    ("今日は", 3),
    ("날씨", 2),
    # eight characters of an alphabet, two wide ones
    ("weather 天气", 4),
])  # fmt: skip
def test_tokens_are_estimated_by_script(text, tokens):
    assert estimate_tokens(text) == tokens


PAGE = "A page of it. " * 200  # 2,800 characters, 700 tokens


def long_talk(*sizes):
    """A conversation whose results have these lengths."""
    spoken = [ASK]
    for n, size in enumerate(sizes):
        spoken += [asked(f"c{n}"), told(f"c{n}", "x" * size)]
    return spoken


@pytest.mark.parametrize(("sizes", "excess", "folds"), [
    ([4000, 4000, 4000], 1, [2]),               # the oldest, and no more than needed
    ([4000, 4000, 4000], 900, [2]),
    ([4000, 4000, 4000], 1200, [2, 4]),
    # those of the newest turn stay, whatever is missing
    ([4000, 4000, 4000], 99999, [2, 4]),
    # a small one is a fact rather than a page
    ([40, 4000, 4000], 1, [4]),
    ([4000], 99999, []),
    ([4000, 4000], 0, []),
])  # fmt: skip
def test_the_oldest_large_results_are_folded_first(sizes, excess, folds):
    spoken = long_talk(*sizes)
    assert to_fold(spoken, list(map(history.estimate_size, spoken)), excess) == folds


def test_a_folded_result_keeps_its_call_its_beginning_and_a_way_back():
    message = told("c", PAGE)
    made = fold(message, "r_1")
    assert (made.result.call_id, made.result.handle, made.result.value) == (
        "c",
        "r_1",
        PAGE,
    )
    assert made.result.text.startswith("A page of it.")
    assert "read_result(handle='r_1')" in made.result.text
    assert history.estimate_size(made) < 70


def test_pictures_of_a_folded_result_are_left_out():
    message = ToolMessage(
        replace(told("c", PAGE).result, media=[hr.Media("image/png", b"1")])
    )
    assert fold(message, "r_1").result.media == ()


def test_the_estimate_learns_from_what_the_provider_counts():
    window, spoken = Window(10_000), long_talk(4000, 4000)
    assert window.overflows(spoken) == 0
    asked_for = window.asked
    for _ in range(8):
        # this provider counts three tokens where one was estimated
        window.learn_scale(3 * asked_for)
    assert window.scale == pytest.approx(3.0, abs=0.02)
    assert Window(asked_for * 2, scale=3.0).overflows(spoken) > 0


@given(st.lists(st.integers(0, 40), max_size=12), st.data())
def test_sizes_that_are_kept_are_those_counted_anew(steps, data):
    spoken, window = long_talk(400), Window(1000)
    for size in steps:
        spoken += long_talk(size)[1:]
        if data.draw(st.booleans()):
            spoken[-1] = fold(spoken[-1], "r_1")
            window.forget_sizes()
        window.size(spoken)
        assert window.sizes == list(map(history.estimate_size, spoken))
        assert window.asked == sum(window.sizes)


@pytest.mark.parametrize("counted", [0, 10**9])
def test_a_provider_that_counts_absurdly_does_not_make_the_window_useless(counted):
    window = Window(1000)
    window.size(long_talk(4000))
    for _ in range(20):
        window.learn_scale(counted)
    assert 0.5 <= window.scale <= 4.0


WINDOW = 4_000


@hr.tool(effect="read")
def read_page(number: int) -> str:
    """Read a page of the book."""
    return f"page {number}: " + PAGE


def reading(pages):
    """A model that reads so many pages, then goes back to the first by its handle, and answers with what it found."""

    def go_back(messages):
        first = next(m.result for m in messages if isinstance(m, ToolMessage))
        handle = first.text.partition("handle='")[2].partition("'")[0]
        return call("read_result", handle=handle, limit=8)

    return [
        *(call("read_page", number=n) for n in range(pages)),
        go_back,
        lambda messages: messages[-1].result.text,
    ]


def counted_by_the_provider(messages):
    return sum(map(history.estimate_size, messages))


class Counting(ScriptedModel):
    """A model that counts tokens as it was asked."""

    async def ask(self, request, listener=None):
        turn = await super().ask(request, listener)
        return replace(turn, usage=Usage(counted_by_the_provider(request.messages), 20))


def test_a_long_conversation_stays_within_its_window_and_an_old_result_can_be_read_back(
    drive,
):
    driver, model = drive([read_page]), Counting(reading(20))
    run = driver.run(
        "Read it all.", model=model, budget=hr.Budget(context_tokens=WINDOW)
    )
    sizes = [counted_by_the_provider(request.messages) for request in model.requests]
    assert (
        sum(
            len(m.result.value) // 4 for m in run.messages if isinstance(m, ToolMessage)
        )
        > 3 * WINDOW
    )
    assert max(sizes) <= WINDOW
    assert (run.status, json.loads(run.text)["text"]) == ("done", "page 0: ")
    folds = driver.told(ContextFolded)
    # in large steps: what a provider has cached is seldom lost
    assert 2 <= len(folds) <= 10
    assert all(fold.tokens <= WINDOW for fold in folds)


@pytest.mark.parametrize("wire", WIRES)
def test_folding_breaks_no_pair_of_call_and_result_on_any_wire(drive, wire):
    with ScriptedServer(
        [*(call("read_page", number=n) for n in range(12)), "Read."], wire=wire
    ) as server:
        run = drive([read_page]).run(
            "?", model=server.model, budget=hr.Budget(context_tokens=WINDOW)
        )
    assert run.status == "done"
    assert sanitize(run.messages).messages is run.messages
    assert "read_result" in json.dumps(server.requests[-1])


def test_without_a_window_nothing_is_folded(drive):
    driver, model = (
        drive([read_page]),
        ScriptedModel([*(call("read_page", number=n) for n in range(20)), "Read."]),
    )
    driver.run("?", model=model)
    assert driver.told(ContextFolded) == []
    assert all(
        PAGE in m.result.text
        for m in model.requests[-1].messages
        if isinstance(m, ToolMessage)
    )


class Later(MemoryStore):
    """A store that keeps texts in another thread."""

    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)

    def save_result(self, run_id, text):
        return self.pool.submit(super().save_result, run_id, text)


def test_a_store_that_answers_later_keeps_the_results_too(drive):
    driver, model = drive([read_page], store=Later()), Counting(reading(20))
    run = driver.run("?", model=model, budget=hr.Budget(context_tokens=WINDOW))
    assert json.loads(run.text)["text"] == "page 0: "


class Full(MemoryStore):
    """A store that has room for so many texts."""

    def __init__(self, room=0):
        super().__init__()
        self.room = room

    def save_result(self, run_id, text):
        if not self.room:
            raise OSError("no space left")
        self.room -= 1
        return super().save_result(run_id, text)


def test_a_result_that_cannot_be_kept_stays_where_it_is(drive):
    model = ScriptedModel([*(call("read_page", number=n) for n in range(9)), "Read."])
    driver = drive([read_page], store=Full())
    run = driver.run("?", model=model, budget=hr.Budget(context_tokens=WINDOW))
    assert run.status == "done"
    assert all(
        PAGE in m.result.text for m in run.messages if isinstance(m, ToolMessage)
    )


def test_what_was_kept_before_a_store_was_full_can_be_read(drive):
    run = drive([read_page], store=Full(room=1)).run(
        "?", model=Counting(reading(9)), budget=hr.Budget(context_tokens=WINDOW)
    )
    assert (run.status, json.loads(run.text)["text"]) == ("done", "page 0: ")
