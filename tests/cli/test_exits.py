"""What a shell learns from a run, a call, or a mistake."""

import pytest

from handrail.cli.exits import Exit, of_error, of_failure, of_run
from handrail.errors import Code, ConfigError, Failure, ModelError, StoreUnavailable


@pytest.mark.parametrize(("code", "expected"), [
    (None, Exit.OK),
    (Code.APPROVAL_PENDING, Exit.WAITING),
    (Code.BUDGET_EXHAUSTED, Exit.BUDGET),
    (Code.NOT_PERMITTED, Exit.DENIED),
    (Code.NOT_APPROVED, Exit.DENIED),
    (Code.IN_DOUBT, Exit.IN_DOUBT),
    (Code.CANCELLED, Exit.INTERRUPTED),
    (Code.TIMEOUT, Exit.ERROR),
    ("ORDER_NOT_FOUND", Exit.ERROR),  # a tool's own code
])  # fmt: skip
def test_a_failure_has_an_exit_code(code, expected):
    assert of_failure(Failure(code, "") if code else None) is expected


@pytest.mark.parametrize(("status", "failures", "expected"), [
    ("done", [], Exit.OK),
    # the model corrected itself
    ("done", [Code.INVALID_ARGUMENTS], Exit.OK),
    # an answer, but not all was done
    ("done", [Code.NOT_APPROVED], Exit.DENIED),
    ("done", [Code.IN_DOUBT, Code.NOT_APPROVED], Exit.IN_DOUBT),
    ("waiting", [Code.APPROVAL_PENDING], Exit.WAITING),
    ("waiting", [Code.APPROVAL_PENDING, Code.IN_DOUBT], Exit.IN_DOUBT),
    ("budget", [Code.NOT_APPROVED], Exit.BUDGET),
    ("stopped", [], Exit.ERROR),
    ("refused", [], Exit.ERROR),
    ("cut", [], Exit.ERROR),
    ("failed", [], Exit.ERROR),
    ("cancelled", [], Exit.INTERRUPTED),
])  # fmt: skip
def test_a_run_tells_the_worst_that_a_person_must_know(status, failures, expected):
    assert of_run(status, [Failure(code, "") for code in failures]) is expected


@pytest.mark.parametrize(("error", "expected"), [
    (ConfigError(""), Exit.USAGE),         # the caller can set it right
    (ModelError(""), Exit.ERROR),
    (StoreUnavailable(""), Exit.ERROR),
])  # fmt: skip
def test_a_mistake_in_setting_up_is_told_from_an_error(error, expected):
    assert of_error(error) is expected
