"""A stored run as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from handrail.cli.printer import Printer, console, print_columns
from handrail.cli.run_lines import describe_cache, turn_lines
from handrail.cli.store_access import command_line, indent_json, say, span
from handrail.cli.timeline import Timeline
from handrail.history.facts import run_status
from handrail.history.run_history import RunHistory, question_in
from handrail.messages import Usage
from handrail.process_identity import is_gone
from handrail.records import ApprovalRequest, Submission, describe_time
from handrail.runs import describe_ending
from handrail.stores.submitted import waits_for_model
from handrail.surroundings.clock import unix_time

WORKER_RESUMES = "a worker resumes the run by itself"
"""What follows the answer to a question of a run that was submitted to workers."""


class RunPage:
    """A stored run as a person reads it, on stdout."""

    def __init__(
        self,
        history: RunHistory,
        questions: Sequence[ApprovalRequest],
        place: str,
        doubts: Sequence[str] = (),
        *,
        submission: Submission | None = None,
    ) -> None:
        self._history = history
        self._questions = questions
        self._place = place
        self._doubts = doubts
        self._submission = submission
        self._at_s = 0.0
        self._printer = Printer(Timeline(), console(), now=lambda: self._at_s)

    def head(self) -> None:
        """Print who asked what, of whom, when."""
        record = self._history.stored.record
        (status, reason, _) = self._history.ending
        rows = [
            (record.run_id, describe_ending(status, reason, "{status}: {reason}")),
            (
                "started",
                f"{describe_time(record.created)}; changed {describe_time(record.updated)}",
            ),
            ("model", self._history.model or self._describe_unnamed_model()),
        ]
        if record.takeovers:
            if record.takeovers == 1:
                times = "once"
            else:
                times = f"{record.takeovers} times in a row"
            rows.append(("taken over", f"{times} from a process that died in it"))
        if record.forked_from:
            origin = f"of {record.forked_from} at turn {record.forked_at}"
            rows.append(("fork", origin))
        rows += self._history.origins
        usage = sum((each.turn.usage for each in self._history.turns), Usage())
        if usage.cached_tokens or usage.cache_written_tokens:
            rows.append(("tokens", describe_cache(usage).removeprefix(", ")))
        print_columns(console(), rows)
        self._printer.question(self._history.question)

    def _describe_unnamed_model(self) -> str:
        """Return which model is asked where the run names none, and none has answered.

        Once workers have ended a run, the store no longer says that they carried it out.
        """
        if self._submission is not None:
            return "the worker's"
        return "the worker's, or an object, which cannot be stored"

    def turns(self, *, whole: bool) -> None:
        """Print the turns: texts, calls and results."""
        words: dict[str, list[ApprovalRequest]] = {}
        for question in self._questions:
            words.setdefault(question.step, []).append(question)
        for turn in self._history.turns:
            if turn.question:
                self._printer.question(question_in(turn.question))
            for self._at_s, line in turn_lines(turn, words, whole=whole):
                self._printer.show(line)
        if self._history.unanswered:
            self._printer.question(question_in(self._history.unanswered))

    def wire(self) -> None:
        """Print the answers as they were received."""
        for turn in self._history.turns:
            self._printer.say(f"turn {turn.number}, as the provider sent it")
            if raw := turn.turn.raw:
                click.echo(indent_json(raw))
            else:
                say("not stored: nothing in it has to be sent back unchanged")

    def end(self) -> None:
        """Print how it ended or waits, and the command to go on."""
        status, _, text = self._history.ending
        last = self._history.turns[-1].turn if self._history.turns else None
        # beside calls it is printed above already
        if text and not (last and last.calls and text == last.text):
            self._printer.say(text)
        # not wrapped: there are commands in it, to be copied
        click.echo()
        for line in self._next(status):
            say(line)

    def _next(self, status: str) -> Iterator[str]:
        run_id = self._history.stored.record.run_id
        needs = "--tools ..." if self._history.model else "--tools ... --model ..."
        resume = command_line(f"runs resume {run_id} {needs}", self._place)
        for question in self._questions:
            if question.state == "open":
                yield f"{question.tool} waits for a person, who has {span(question.expires - unix_time())} to decide"
                yield f"decide:  {command_line(f'approvals approve {question.id}', self._place)}   (or deny)"
        yield from self._doubts
        if run_status(self._history.stored.record) == "poisoned":
            yield "its processes keep dying: look at the last call above before you resume it"
            yield f"go on:   {resume} --anyway"
            yield f"or end:  {command_line(f'runs cancel {run_id}', self._place)}"
        elif status == "waiting" and self._submission is not None:
            yield f"then {WORKER_RESUMES}"
        elif status in ("waiting", "failed", "cancelled"):
            yield f"go on:   {resume}"
        elif status == "queued" and self._submission is not None:
            yield from self._wait(self._submission)
        elif status == "queued":
            yield "its process left it before its end; any process can resume it"
            yield f"go on:   {resume}"
        elif status == "running":
            yield from self._way_on(resume)
        elif status == "budget":
            yield f"go on:   {command_line(f'runs resume {run_id} --tools ... --max-turns N', self._place)}"
        else:
            yield "the run has ended"

    def _wait(self, submission: Submission) -> Iterator[str]:
        """Say what a queued run waits for: a worker, or a time, such as that at which its model is asked again."""
        if submission.wake_at and submission.note:
            yield f"waits in queue {submission.queue}, {submission.note}"
            if waits_for_model(self._history.stored, submission):
                run_id = self._history.stored.record.run_id
                yield f"now:     {command_line(f'runs wake {run_id}', self._place)}"
            return
        yield f"waits for a worker in queue {submission.queue}"
        if submission.note:
            yield f"note:    {submission.note}"

    def _way_on(self, resume: str) -> Iterator[str]:
        """Say how a run goes on whose status is `running`: its process may have died."""
        died = is_gone(self._history.stored.record.owner)
        if self._submission is not None:
            yield "its worker died" if died else "a worker carries it out"
            when = "about 20 s after that death" if died else "if its worker dies"
            yield f"another worker resumes it by itself {when}"
        elif died:
            yield "its process died; another one can take it over"
            yield f"go on:   {resume}"
        else:
            yield "it is under way, or its process died; then another one can take it over"
            yield f"go on:   {resume}"
