"""Questions to a durable store: they have a connection and a thread of their own, so that none stops a commit.

A question may look through a million rows. On the writer's connection every claim would wait for it.

Rule 1: a question sees all that was asked of the store before it: it passes through the writer's queue, and is put to
        the database once what stood there has been committed.
Rule 2: the connection can change nothing, whatever a question tries.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from handrail.errors import StoreUnavailable
from handrail.futures import StoreFuture
from handrail.logs import log
from handrail.stores.database import Connection
from handrail.stores.group_commit import Writer, error_for_caller, run_job
from handrail.workers import fork_safety

T = TypeVar("T")


class Reader:
    """The questions, and the thread that puts them to the database. Both begin with the first one.

    Args:
        open_connection: Opens a connection that can change nothing.
    """

    def __init__(
        self, writer: Writer, open_connection: Callable[[], Connection], name: str
    ) -> None:
        self._writer = writer
        self._open_connection = open_connection
        self._name = name
        self._is_open = True
        self._answered = 0
        """How many questions were answered: whoever closes sees that the database still answers."""
        fork_safety.reset_after_fork(self._reset)

    def _reset(self) -> None:
        self._questions: SimpleQueue[tuple[Callable[[Any], Any], Future[Any]] | None]
        self._questions = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()

    def ask(self, question: Callable[[Any], T]) -> Future[T]:
        """Put a question; it may be put again where the connection broke.

        Raises:
            StoreUnavailable, SetupError: As `Writer.submit`.
        """
        answer: Future[T] = StoreFuture()

        def hand_over(connection: Connection) -> None:
            if self._enqueue(question, answer):
                return
            # the store is being closed; there is no more commit that could wait
            if answer.set_running_or_notify_cancel():
                run_job(connection, question, answer)

        def refuse(handing_over: Future[None]) -> None:
            error = handing_over.exception()
            if error is not None and answer.set_running_or_notify_cancel():
                answer.set_exception(error)

        self._writer.submit(hand_over).add_done_callback(refuse)
        return answer

    def close(self, *, wait_s: float) -> None:
        """Answer the questions until now, then close the connection. The writer is closed before.

        Args:
            wait_s: A database that answers no question for so long is given up: the questions fail with
                StoreUnavailable.
        """
        with self._lock:
            self._is_open = False
            thread = self._thread
            self._questions.put(None)
        if thread is None or thread is current_thread():
            return
        answered = -1
        while thread.is_alive() and answered != self._answered:
            answered = self._answered
            thread.join(wait_s)
        if thread.is_alive():
            self._give_up()

    def _give_up(self) -> None:
        """Refuse the questions that are queued, since the database does not answer."""
        left = 0
        with suppress(Empty):
            while (queued := self._questions.get_nowait()) is not None:
                _, answer = queued
                if answer.set_running_or_notify_cancel():
                    left += 1
                    answer.set_exception(
                        StoreUnavailable("the store was closed before it had answered")
                    )
        self._questions.put(None)
        log.warning(
            "%s was closed though its database did not answer; %d questions were left",
            self._name,
            left,
        )

    def _enqueue(self, question: Callable[[Any], Any], answer: Future[Any]) -> bool:
        """Queue a question for the thread; False once this is closed."""
        with self._lock:
            if not self._is_open:
                return False
            if self._thread is None:
                thread = Thread(
                    target=self._run,
                    name=f"handrail questions {self._name}",
                    daemon=True,
                )
                thread.start()
                self._thread = thread
            self._questions.put((question, answer))
            return True

    def _run(self) -> None:
        connection: Connection | None = None
        while (next_question := self._questions.get()) is not None:
            question, answer = next_question
            if not answer.set_running_or_notify_cancel():
                continue
            if connection is None:
                try:
                    connection = self._open_connection()
                except Exception as error:  # the next question tries again
                    answer.set_exception(error_for_caller(error))
                    continue
            run_job(connection, question, answer)
            self._answered += 1
            # an answer that is waiting for its caller may hold megabytes; this thread does not
            del question, answer, next_question
        if connection is not None:
            connection.close()
