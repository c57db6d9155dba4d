"""A kept run as a person reads it, and as one JSON document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from handrail.cli.printer import Printer, console, print_columns
from handrail.cli.run_history import RunHistory, lines_of, question_of
from handrail.cli.store_access import command_line, laid_out, moment, say, span
from handrail.cli.timeline import Timeline
from handrail.errors import JournalMismatch, Json
from handrail.journal.codec import input_from_json
from handrail.process_identity import is_gone
from handrail.records import ApprovalRequest, RunRecord


def stands(record: RunRecord) -> str:
    """Return how a run stands; of one that is over, how it ended."""
    if record.is_poisoned and (record.status == "poisoned" or is_gone(record.owner)):
        return "poisoned"
    if isinstance(record.result, Mapping):
        ended = record.result.get("status", "")
    else:
        ended = ""
    if record.status == "done":
        return str(ended or record.status)
    return record.status


def question_in(record: RunRecord) -> str:
    """Return what a person asked; of a run that this version cannot read, that it cannot."""
    try:
        return question_of(input_from_json(record.input))
    except JournalMismatch as error:
        return f"({error})"


def facts(record: RunRecord) -> dict[str, Json]:
    """Return what is known of a run without its steps."""
    return {
        "run_id": record.run_id,
        "status": record.status,
        "ended": stands(record),
        "question": question_in(record),
        "created": record.created,
        "updated": record.updated,
        "epoch": record.epoch,
        "cancel_requested": record.cancel_requested,
        "forked_from": record.forked_from,
        "forked_at": record.forked_at,
        "takeovers": record.takeovers,
    }


def document(told: RunHistory, questions: Sequence[ApprovalRequest]) -> dict[str, Json]:
    """Return everything that is known of a run."""
    turns = [
        {
            "turn": each.number,
            "text": each.turn.text,
            "finish": each.turn.finish,
            "calls": [
                {
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "has_result": result is not None,
                }
                for call, result in zip(each.turn.calls, each.results, strict=True)
            ],
        }
        for each in told.turns
    ]
    asked = [
        {
            "id": each.id,
            "tool": each.tool,
            "state": each.state,
            "arguments": each.arguments,
        }
        for each in questions
    ]
    told_so_far = told.as_run().as_json()
    about = {**facts(told.begun.record), "model": told.asked.model}
    return {
        **about,
        "turns": turns,
        "questions": asked,
        "result": told_so_far,
    }


class Page:
    """A kept run as a person reads it, on stdout."""

    def __init__(
        self, told: RunHistory, questions: Sequence[ApprovalRequest], place: str, doubts: Sequence[str] = ()
    ) -> None:
        self._told = told
        self._questions = questions
        self._place = place
        self._doubts = doubts
        self._at_s = 0.0
        self._printer = Printer(Timeline(), console(), now=lambda: self._at_s)

    def head(self) -> None:
        """Who asked what, of whom, when."""
        record = self._told.begun.record
        (status, reason, _) = self._told.ending
        rows = [
            (record.run_id, f"{status}: {reason}" if reason else status),
            ("begun", f"{moment(record.created)}; changed {moment(record.updated)}"),
            ("model", self._told.asked.model or "an object, which cannot be kept"),
        ]
        if record.takeovers:
            if record.takeovers == 1:
                times = "once"
            else:
                times = f"{record.takeovers} times in a row"
            rows.append(("taken over", f"{times} from a process that died in it"))
        rows += [("fork", f"of {record.forked_from} at turn {record.forked_at}")] if record.forked_from else []
        print_columns(console(), rows)
        self._printer.question(self._told.question)

    def turns(self, *, whole: bool) -> None:
        """What was said and done."""
        words: dict[str, list[ApprovalRequest]] = {}
        for question in self._questions:
            words.setdefault(question.step, []).append(question)
        for told in self._told.turns:
            for self._at_s, line in lines_of(told, words, whole=whole):
                self._printer.show(line)

    def wire(self) -> None:
        """The answers as they were received."""
        for told in self._told.turns:
            self._printer.say(f"turn {told.number}, as the provider sent it")
            raw = told.turn.raw
            say(laid_out(raw) if raw else "not kept: nothing in it has to go back as it was")

    def end(self) -> None:
        """Where it stands, and the command to go on."""
        status, _, text = self._told.ending
        last = self._told.turns[-1].turn if self._told.turns else None
        if text and not (last and last.calls and text == last.text):  # beside calls it stands above already
            self._printer.say(text)
        say("\n" + "\n".join(self._next(status)))  # not wrapped: there are commands in it, to be copied

    def _next(self, status: str) -> Iterator[str]:
        run_id = self._told.begun.record.run_id
        go_on = command_line(f"runs resume {run_id} --tools ...", self._place)
        for question in self._questions:
            if question.state == "open":
                yield f"{question.tool} waits for a person, who has {span(question.expires - time.time())} to decide"
                yield f"decide:  {command_line(f'approvals approve {question.id}', self._place)}   (or deny)"
        yield from self._doubts
        if stands(self._told.begun.record) == "poisoned":
            yield "its processes die, one after the other: look at the last call above before anybody goes on with it"
            yield f"go on:   {go_on} --anyway"
            yield f"or end:  {command_line(f'runs cancel {run_id}', self._place)}"
        elif status in ("waiting", "failed", "cancelled"):
            yield f"go on:   {go_on}"
        elif status == "queued":
            yield "whoever drove it has left it before its end; anybody can go on with it"
            yield f"go on:   {go_on}"
        elif status == "running":
            if is_gone(self._told.begun.record.owner):
                yield "its process died in the middle of it; another one can take it over"
            else:
                yield "it is under way, or its process died in the middle of it; then another one can take it over"
            yield f"go on:   {go_on}"
        elif status == "budget":
            yield f"go on:   {command_line(f'runs resume {run_id} --tools ... --max-turns N', self._place)}"
        else:
            yield "it is over"
