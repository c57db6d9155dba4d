"""`kill -9` at four places of a write, on each framework, for each way to know what became of it; then two resumes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.testing.frameworks.play import TARGETS, find_versions

PROGRAM = Path(__file__).with_name("killed.py")
INSTALLED = find_versions()

pytestmark = [pytest.mark.slow, pytest.mark.proof]


@pytest.mark.parametrize("target", TARGETS)
def test_a_killed_write_happens_once_and_the_model_is_told_what_became_of_it(
    target, tmp_path
):
    if INSTALLED[target] is None:
        pytest.skip(f"{target} is not installed: pip install 'handrail[frameworks]'")
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), target, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    cases = json.loads(ended.stdout)
    assert len(cases) == 12
    assert {case["ended"] for case in cases} == {signal.SIGKILL}
    for case in cases:
        happened = case["place"] in ("after the effect", "after the call")
        assert case["before"] == int(happened), case
        # Nobody can tell whether a write took effect that has neither a key nor a way to ask.
        is_lost = case["kind"] == "none" and case["place"] == "before the effect"
        assert case["after"] == (0 if is_lost else 1), case
        texts = case["talks"][0]["texts"]
        assert expected(case) in texts[0], case


def expected(case):
    """Return what the model reads when the run goes on."""
    if case["kind"] == "none" and "effect" in case["place"]:
        return "IN_DOUBT"
    if case["kind"] == "verify" and case["place"] == "after the effect":
        return "verified"
    return "paid"
