"""The promises that can be checked from outside, each with its sentence of `docs/explanation/promises.md`.

What took effect at the far side, what the models read and what the ledger says are compared at the end of a world. The
checks know nothing of how handrail works; an answer that says "nobody knows" is a third kind beside yes and no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from handrail.calls import ToolResult
from handrail.messages import ToolMessage

if TYPE_CHECKING:
    from tests.prove.world import Effect, World

SENTENCES: Mapping[str, str] = {
    "one result": "Every call that a model emits gets exactly one result, in the order of the calls",
    "once": "the act starts once, and whoever asks again gets the first result.",
    "doubt": "It stays in doubt whatever a later attempt says of itself, and nobody guesses.",
    "truth": "its result says which is true: it did not start; it was stopped; it may have happened; it finished late.",
    "ledger": "the answer is what the ledger knows.",
    "delivered": "A write whose result comes from outside (`deferred=True`) ends with that delivery.",
    "allowed": "When unsure whether something was allowed, it was not.",
    "ends": "can be resumed after `kill -9`, approved tomorrow by somebody else",
}
"""What each promise says to users; a test looks that the page says so."""

NOBODY_KNOWS = {"IN_DOUBT"}
SOMEBODY_ELSE = {
    "IN_PROGRESS",
    "IDEMPOTENCY_KEY_REUSED",
    "RESULT_PENDING",
    "APPROVAL_PENDING",
}
_SAYS_IT_STARTED = ("may have", "was started", "carried out", "already done")


def check(world: World) -> None:
    """Note every promise that the world broke."""
    told = dict(_list_results(world))
    for promise, judge in _CHECKS:
        for words in judge(world, told):
            world.violate(promise, words)


Told = Mapping[str, list[ToolResult]]
"""What the model of each process has read, by the name of the process."""


def _list_results(world: World) -> Iterator[tuple[str, list[ToolResult]]]:
    for process in world.processes:
        run = process.result
        # of a run that somebody else has taken over, this process says nothing
        if run is None or run.status == "moved":
            continue
        yield (
            process.name,
            [each.result for each in run.messages if isinstance(each, ToolMessage)],
        )


def note_start(world: World, order: str, amount: float) -> None:
    """Note a start that nobody has agreed to. Called when the tool starts."""
    scenario = world.scenario
    required = scenario.required_approvals
    if not required:
        return
    for question in world.store._approvals.values():
        if question.awaits_result or question.state not in ("approved", "used"):
            continue
        arguments = question.edited or question.arguments
        names = question.agreed or (question.by,)
        who = {each.casefold() for each in names} - {scenario.principal, ""}
        is_same = (arguments.get("order"), arguments.get("amount")) == (order, amount)
        if is_same and len(who) >= required:
            return
    world.violate("allowed", f"it started without the approval of {required}")


def _other_arguments(world: World, told: Told) -> Iterator[str]:
    """Nobody is told that something is done which was done with other arguments."""
    amounts = world.scenario.amounts
    if len(amounts) < 2:
        return
    for process, amount in zip(world.processes, amounts, strict=True):
        done = [each for each in told.get(process.name, ()) if each.failure is None]
        if done and not any(each.amount == amount for each in world.effects):
            yield "told done, and it was done with other arguments"


def _allowed(world: World, told: Told) -> Iterator[str]:
    """Each start has words of its own."""
    required = world.scenario.required_approvals
    if not required or world.is_deployed:
        return
    agreed = sum(" approves " in said or " edits " in said for said in world.people)
    acts = {each.key for each in world.effects}
    if world.scenario.is_write and len(acts) * required > agreed:
        yield f"{len(acts)} writes with {agreed} words"


def _once(world: World, told: Told) -> Iterator[str]:
    scenario = world.scenario
    if not scenario.is_write:
        return
    is_read = world.is_deployed and scenario.deploy.get("effect") == "read"
    if is_read and not any(each.key for each in world.effects):
        return  # nothing began before it was a read
    wanted = sum("approves" in said and "to do it again" in said for said in world.people)  # fmt: skip
    acts = Counter(each.act for each in world.effects if "/again-" not in each.key)
    for count in acts.values():
        if count > 1 + wanted:
            yield f"{count} effects of one act"
            return
    if scenario.declare.get("repeatable"):
        return
    # Two equal calls without a key are held by the guard, which helps where nothing goes wrong, and promises nothing.
    is_wanted_once = len({*scenario.orders}) == len(scenario.orders) or not world.cost
    is_one_act = "key" in scenario.declare or (
        len(_runs(world)) == 1 and is_wanted_once
    )
    orders = Counter((each.order, each.amount) for each in world.effects)
    if is_one_act and any(count > 1 + wanted for count in orders.values()):
        yield f"more than one effect of one order, under {len(acts)} keys"


def _runs(world: World) -> set[str]:
    return {each.run_id for each in world.processes}


def _one_result(world: World, told: Told) -> Iterator[str]:
    said: dict[tuple[str, str], str] = {}
    for name, results in told.items():
        ids = [each.call_id for each in results]
        if len({*ids}) < len(ids):
            yield "one call has two results"
        for result in results:
            what = _say(result)
            call = (name.rstrip("*"), result.call_id)
            if said.setdefault(call, what) != what:
                yield f"one call was told {said[call]} and {what}"


def _say(result: ToolResult) -> str:
    return "done" if result.failure is None else str(result.failure.code)


def _truth(world: World, told: Told) -> Iterator[str]:
    for result, mine in _results_and_effects(world, told):
        failure = result.failure
        world.reached.add(f"Code.{_say(result)}")
        if failure is None:
            if not world.effects:
                yield "told done, and nothing has happened"
            elif not _is_true_result(world, result):
                yield f"told {result.value!r:.20}, which no attempt has returned"
            continue
        code = str(failure.code)
        if not (mine and world.scenario.is_write):
            continue
        if code in NOBODY_KNOWS or code in SOMEBODY_ELSE:
            continue
        text = result.text.lower()
        if failure.retryable or not any(words in text for words in _SAYS_IT_STARTED):
            retryable = ", retryable," if failure.retryable else ""
            yield f"told {code}{retryable} and it has happened"


def _is_true_result(world: World, result: ToolResult) -> bool:
    if "deferred" in {**world.scenario.declare, **world.scenario.deploy}:
        return True  # `_delivered` looks at these
    return str(result.value).startswith("receipt-")


def _results_and_effects(
    world: World, told: Told
) -> Iterator[tuple[ToolResult, list[Effect]]]:
    """Yield every result with what its own call has brought about."""
    for name, results in told.items():
        run = name.rstrip("*")
        for result in results:
            yield (
                result,
                [
                    each
                    for each in world.effects
                    if each.call_id == result.call_id and each.run_id == run
                ],
            )


def _doubt(world: World, told: Told) -> Iterator[str]:
    """What is in doubt is not told as what may be called again, and what is not is not told as in doubt."""
    scenario = world.scenario
    if not (
        world.is_disturbed
        or scenario.counts_as_gone
        or scenario.declare.get("deferred")
    ):
        said = {_say(result) for results in told.values() for result in results}
        if "IN_DOUBT" in said:
            yield "told IN_DOUBT, and nothing has gone wrong"
    for name, results in told.items():
        for result in results:
            if result.failure is None or str(result.failure.code) in SOMEBODY_ELSE:
                continue
            rows = [
                row
                for row in world.store._ledger.rows.values()
                if row.run_id == name.rstrip("*") and row.state == "in_doubt"
            ]
            is_only = len(results) == 1 and len(rows) == 1
            # of a claim whose answer did not come, it is true that it was not started
            is_known = name.rstrip("*") not in world.unanswered
            if is_only and is_known and result.failure.retryable:
                yield f"told {_say(result)}, retryable, and the write is in doubt"


def _ledger(world: World, told: Told) -> Iterator[str]:
    for (_, key), row in world.store._ledger.rows.items():
        happened = [each for each in world.effects if each.key == key]
        if row.state == "failed" and happened:
            yield "the ledger says failed, and it has happened"
        if row.state == "done" and not happened and not _has_act(world, key):
            yield "the ledger says done, and nothing has happened"


def _has_act(world: World, key: str) -> bool:
    return any(each.act == key.partition("/again-")[0] for each in world.effects)


def _delivered(world: World, told: Told) -> Iterator[str]:
    scenario = world.scenario
    if not scenario.declare.get("deferred") or world.is_deployed:
        return
    if not scenario.is_write or len(scenario.orders) > 1 or world.is_cancelled:
        return  # the sentence is about writes; of several calls, the world does not know which one it was
    for name, results in told.items():
        if not results:
            continue
        delivered = world.delivered.get(name.rstrip("*"))
        last = results[-1]
        if last.failure is None and last.value not in world.delivered.values():
            yield f"told {last.value!r}, and {delivered!r} was delivered"
        if name.rstrip("*") in world.unanswered and _say(last) == "IN_DOUBT":
            continue  # nobody could be asked what has become of this write
        if last.failure is not None and delivered is not None:
            yield f"the result was delivered, and the model reads {_say(last)}"


def _ends(world: World, told: Told) -> Iterator[str]:
    for process in world.processes:
        error = process.error
        is_other = len(world.processes) > len(_runs(world))
        if process.state == "ended" and error is not None:
            name = type(error).__name__
            if not (is_other and name in ("Fenced", "RunUnderWay", "RunNameTaken")):
                yield f"a process ended by {name}: {str(error)[:90]}"
        if process.state == "waiting" and not world.is_cancelled:
            has_question = bool(world.open_questions(process.run_id))
            words = "" if has_question else " and no question that anybody could answer"
            yield f"a run waits for ever{words}"


_CHECKS: tuple[tuple[str, Callable[[World, Told], Iterator[str]]], ...] = (
    ("once", _once),
    ("once", _other_arguments),
    ("one result", _one_result),
    ("truth", _truth),
    ("doubt", _doubt),
    ("ledger", _ledger),
    ("delivered", _delivered),
    ("allowed", _allowed),
    ("ends", _ends),
)
