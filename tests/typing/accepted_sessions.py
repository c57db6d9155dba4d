"""Uses of sessions that type checkers accept, and the types that they see."""

from typing import Any, assert_type

from pydantic import BaseModel

import handrail as hr
from handrail.messages import Message


class Weather(BaseModel):
    city: str
    celsius: float


async def asyncio_session(runtime: hr.Runtime, model: str) -> None:
    first = await runtime.run("How warm is it?", model=model)
    assert_type(await runtime.run("And tomorrow?", model=model, after=first), hr.Run[None])
    assert_type(await runtime.run("And tomorrow?", model=model, after="r_1", output=Weather), hr.Run[Weather])
    session = hr.Session(runtime, id="s", model=model, system="Be brief.", inject={"tenant": "acme"}, scope="acme")
    assert_type(session.id, str)
    assert_type(await session.run("How warm is it?"), hr.Run[None])
    assert_type((await session.run("How warm is it?", output=Weather, model=model)).output, Weather)
    assert_type(await session.resume(anyway=True), hr.Run[Any])
    assert_type(await session.replay(), hr.Run[Any])
    assert_type(await session.messages(), list[Message])
    assert_type(await session.fork(id="other", after_round=2), hr.Session)
    assert_type(session.cancel(by="maria"), bool)
    stream = session.stream("How warm is it?", budget=hr.Budget(calls=3))
    async for event in stream:
        print(event)
    assert_type(stream.run.round, int)


def blocking_session(runtime: hr.SyncRuntime) -> None:
    session = hr.SyncSession(runtime, id="s")
    assert_type(session.run("How warm is it?", model="openai:NAME"), hr.Run[None])
    assert_type(session.run("How warm is it?", output=list[str]).output, list[str])
    assert_type(session.messages(), list[Message])
    assert_type(session.fork(), hr.SyncSession)
    assert_type(hr.messages_as_json(session.messages()), list[dict[str, Any]])
    assert_type(hr.messages_as_json(session.messages(), dialect="anthropic"), dict[str, Any])
    assert_type(hr.messages_from_json([]), list[Message])
    assert_type(session.run("?").new_messages[0], Message)
