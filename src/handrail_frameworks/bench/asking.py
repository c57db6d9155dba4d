"""What is common to frameworks that do not hold a run: a person answers in the queue, and the run is made again."""

from __future__ import annotations

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED


def answer_question(case: Case, runtime: Runtime) -> None:
    """Give a person's word on the call that waits, if this step has one."""
    if not case.step.word:
        return
    queue = runtime.blocking.approvals
    (question,) = queue.list()
    if case.step.word == "deny":
        queue.deny(question.id, by="anna", reason="That is too much.")
    elif case.step.word == "edit":
        queue.edit(question.id, EDITED, by="anna")
    else:
        queue.approve(question.id, by="anna")
