"""Misuses of sessions that type checkers refuse."""

import handrail as hr


async def sessions(runtime: hr.Runtime, blocking: hr.SyncRuntime) -> None:
    hr.Session(blocking)  # error: incompatible type | "runtime"
    hr.SyncSession(runtime)  # error: incompatible type | "runtime"
    session = hr.Session(runtime, "s")  # error: positional argument
    hr.Session(runtime, modle="openai:NAME")  # error: modle
    hr.Session(runtime, run_id="s")  # error: run_id
    await session.run("?", system="Be brief.")  # error: overload
    await session.run("?", after="r_1")  # error: overload
    await session.run(7)  # error: overload | "question"
    await session.fork(3)  # error: positional argument
    await runtime.run("?", model="openai:NAME", after=3)  # error: overload | "after"
    hr.SyncSession(blocking).run("?", output=int).output.upper()  # error: upper
    hr.messages_from_json([], dialect=None)  # error: "dialect"
