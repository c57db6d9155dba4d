"""For tests of your own: a model that follows a script, also as a real server, and a clock that you move by hand.

    model = ScriptedModel([Turn(calls=[call("get_weather", city="北京")], finish="calls"), "It is 21 °C in 北京."])

    with ScriptedServer(model.script) as server:           # real HTTP on 127.0.0.1, in a provider's own wire
        run = await runtime.run("How warm is it?", model=server.model)

The number of answers that a conversation already holds decides which line of the script comes next; there is no
counter. So a repeated request gets the same answer, and conversations do not disturb each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit
from zlib import crc32

from msgspec.structs import replace

from handrail import plugins
from handrail.calls import ToolCall
from handrail.dialects import Envelope, ServerDialect, dialect
from handrail.effects import Approval, AskHuman
from handrail.errors import ConfigError, Json, ModelError, SetupError
from handrail.messages import AssistantMessage, Message, TextDelta, Turn, Usage
from handrail.ports import Listener, Request
from handrail.surroundings.clock import sleep, unix_time
from handrail.testing.serving import Handler, OwnedServer, Serving

Line: TypeAlias = (
    "str | ToolCall | Sequence[ToolCall] | Turn | Callable[[Sequence[Message]], Any]"
)
"""One answer of a script: a text, a call or several, a whole turn, or a function from the messages to one of these."""


def call(name: str, /, **arguments: Json) -> ToolCall:
    """Return a call as a model would write it; its id is made from the name and the arguments."""
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{crc32(f'{name}{text}'.encode()):08x}", name, text)


def as_turn(line: Any, messages: Sequence[Message] = ()) -> Turn:
    """Return what one line of a script means."""
    match line:
        case Turn():
            return line
        case str():
            return Turn(line, usage=_USAGE)
        case ToolCall():
            return Turn(calls=[line], finish="calls", usage=_USAGE)
        case _ if callable(line):
            return as_turn(line(messages), messages)
        case _:
            return Turn(calls=list(line), finish="calls", usage=_USAGE)


_USAGE = Usage(input_tokens=100, output_tokens=20)


def line_for(
    script: Sequence[Line], messages: Sequence[Message], *, one_call_each: bool = False
) -> Turn:
    """Return the answer of a script to this conversation; after the end of the script, its last line again.

    Args:
        one_call_each: The conversation counts each call of an answer as an answer of its own.
    """
    answers = sum(isinstance(message, AssistantMessage) for message in messages)
    place = 0
    while answers and place < len(script) - 1:
        used = 1
        # only then: a line may be a function, which is to be called once a turn
        if one_call_each:
            used = max(1, len(as_turn(script[place], messages).calls))
        answers = max(0, answers - used)
        place += 1
    return as_turn(script[place], messages)


@dataclass
class ScriptedModel:
    """A model in this process, which answers with the lines of `script`; after the last line it repeats that line.

    `requests` holds what it was asked.
    """

    script: Sequence[Line]
    name: str = "scripted"
    requests: list[Request] = field(default_factory=list)

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """See `ports.Model.ask`."""
        self.requests.append(replace(request, messages=tuple(request.messages)))
        turn = line_for(self.script, request.messages)
        if listener is not None and turn.text:
            listener.delta(TextDelta(turn.text))
        return turn


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a server does instead of answering.

    Attributes:
        status: HTTP status to answer with.
        body: What to send; None closes the connection without a word.
        delay_s: Wait before it.
        headers: Sent beside the content type.
    """

    status: int = 200
    body: str | None = ""
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


WIRES = ("openai-chat", "openai-responses", "anthropic")
"""What `ScriptedServer(wire=...)` can speak, beside every prompt dialect at its raw endpoints."""

_PRESETS: Mapping[str, str] = {
    "openai-chat": "openai",
    "mistral": "mistral-v3-tekken",
}
"""The preset that asks in a dialect, where it is not called as the dialect is."""


class RawWire(ServerDialect, Protocol):
    """A wire that carries prompts: the next answer goes on where the prompt of the request ends.

    Attributes:
        one_call_each: A conversation in its prompts counts each call of an answer as an answer of its own.
        stream_type: The content type of a stream.
    """

    @property
    def one_call_each(self) -> bool: ...

    @property
    def stream_type(self) -> str: ...

    def answering(self, body: Mapping[str, Json]) -> ServerDialect:
        """Return this wire as it goes on after the prompt of a request."""
        ...


class UsageCounter(Protocol):
    """Counts what a provider would charge for the input of a request."""

    def count(self, wire: str, body: Mapping[str, Json]) -> Usage:
        """Return the input of a request of a wire in tokens, and how much of it a cache would have given.

        Raises:
            ModelError: The provider would refuse the request.
        """
        ...


def dialects_of_server(wire: str) -> list[ServerDialect]:
    """Return what a scripted server of that wire speaks first.

    Raises:
        ConfigError: There is no such dialect, or a script cannot be told in it.
    """
    model_dialect = dialect(wire)
    if wire in plugins.list_added("raw_wires"):
        return [*plugins.load("raw_wires", wire)(model_dialect)]
    if wire not in WIRES:
        raise ConfigError(
            f"a script is not told in {wire!r}, but in {', '.join(WIRES)} and every prompt dialect"
        )
    return [cast(ServerDialect, model_dialect)]


class ScriptedServer(Serving):
    """A model behind a real HTTP server on the loopback interface, in a provider's own wire.

    Args:
        script: What it answers.
        faults: What goes wrong first: the n-th request gets the n-th fault, at whatever path; those after the last are
            answered.
        wire: The dialect that `model` speaks. Every other wire is answered too, each at its own path. A prompt dialect
            is spoken at `/v1/completions` and at Ollama's `/api/generate`.
        pause_s: Between two pieces of a stream, so that streaming can be seen.
        cache: Counts what each request costs; without it an answer says how long it is, and no more.

    Attributes:
        requests: The bodies that it received, in order.
        outage: What every request gets while it is set, after the faults: a provider that is away.
        base_url: For any client of this wire.
        model: For `Runtime.run(model=...)`.
    """

    def __init__(
        self,
        script: Sequence[Line],
        *,
        faults: Iterable[Fault | None] = (),
        wire: str = "openai-chat",
        pause_s: float = 0.0,
        cache: UsageCounter | None = None,
    ) -> None:
        self.script = script
        self.cache = cache
        self.pause_s = pause_s
        self.faults = list(faults)
        self.outage: Fault | None = None
        self.requests: list[dict[str, Json]] = []
        self.paths: list[str] = []
        spoken = dialects_of_server(wire)
        self.raw_wires = [] if wire in WIRES else cast("list[RawWire]", spoken)
        self.wires = [
            *spoken,
            *(cast(ServerDialect, dialect(each)) for each in WIRES),
        ]
        self._lock = Lock()
        super().__init__(_ModelHandler)
        self.base_url = f"http://{self.host}:{self.port}/v1"
        self.model = f"{_PRESETS.get(wire, wire)}:scripted@{self.base_url}"

    def wire_for(self, path: str) -> ServerDialect:
        """Return the dialect that is spoken at a path."""
        for wire in self.wires:
            if path.endswith(wire.path("", stream=False)):
                return wire
        raise ConfigError(f"nothing is served at {path}")

    def next_fault(self, path: str, body: dict[str, Json]) -> Fault | None:
        """Record a request; return the fault to answer it with, if any."""
        with self._lock:
            self.requests.append(body)
            self.paths.append(path)
            number = len(self.requests) - 1
            if number < len(self.faults):
                return self.faults[number]
            return self.outage


class _ModelHandler(Handler):
    """One connection to a scripted server."""

    server: OwnedServer[ScriptedServer]

    def do_GET(self) -> None:  # the name that http.server looks for
        models = {
            "object": "list",
            "data": [
                {
                    "id": "scripted",
                    "object": "model",
                    "created": 0,
                    "owned_by": "handrail",
                }
            ],
        }
        self._send(200, json.dumps(models))

    def do_POST(self) -> None:
        scripted = self.server.owner
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        wire = scripted.wires[0]
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ConfigError("the request is no JSON object")
            fault = scripted.next_fault(self.path, body)
            if fault is not None:
                self._fail(fault)
                return
            wire = scripted.wire_for(urlsplit(self.path).path)
            messages, tools, options = wire.decode_request(body)
        except (ValueError, ModelError, SetupError) as error:
            self._refuse(wire, error)
            return
        one_call_each, kind = False, "text/event-stream"
        for each in scripted.raw_wires:
            if each is wire:
                one_call_each, kind = each.one_call_each, each.stream_type
                wire = each.answering(body)
        turn = line_for(scripted.script, messages, one_call_each=one_call_each)
        if scripted.cache is not None:
            try:
                usage = scripted.cache.count(wire.name, body)
            except ModelError as error:
                self._refuse(wire, error)
                return
            turn = replace(
                turn, usage=replace(usage, output_tokens=turn.usage.output_tokens)
            )
        envelope = Envelope(
            options.model, f"answer-{len(scripted.requests)}", int(unix_time())
        )
        if options.stream:
            pieces = wire.encode_stream(turn, envelope, tools)
            self._stream(pieces, kind)
        else:
            document = wire.encode_turn(turn, envelope, tools)
            self._send(200, json.dumps(document, ensure_ascii=False))

    def _refuse(self, wire: ServerDialect, error: Exception) -> None:
        document = wire.encode_error(
            str(error), status=400, type="invalid_request_error"
        )
        self._send(400, json.dumps(document))

    def _send(
        self, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, pieces: Iterable[str], kind: str = "text/event-stream") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        pause_s = self.server.owner.pause_s
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if pause_s:
                sleep(pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def _fail(self, fault: Fault) -> None:
        sleep(fault.delay_s)
        if fault.body is None:
            self.close_connection = True
            return
        self._send(fault.status, fault.body, fault.headers)


@dataclass
class ManualClock:
    """Seconds that pass on command: `Runtime(now=clock)`."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


@dataclass
class ScriptedApprover:
    """A person who gives these answers, in order; afterwards nobody is there. `asked` holds what was asked."""

    answers: list[Approval | bool | None] = field(default_factory=list)
    asked: list[AskHuman] = field(default_factory=list)

    async def __call__(self, asked: AskHuman) -> Approval | bool | None:
        self.asked.append(asked)
        return self.answers.pop(0) if self.answers else None


class Overlap:
    """Counts who is inside at once: `async with overlap: ...` or `with overlap: ...` in a tool."""

    def __init__(self) -> None:
        self.inside = self.most_inside = self.entered = 0
        self._lock = Lock()

    def __enter__(self) -> Overlap:
        with self._lock:
            self.inside += 1
            self.entered += 1
            self.most_inside = max(self.most_inside, self.inside)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1

    async def __aenter__(self) -> Overlap:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


__all__ = [
    "Fault",
    "ManualClock",
    "Overlap",
    "ScriptedApprover",
    "ScriptedModel",
    "ScriptedServer",
    "call",
]
