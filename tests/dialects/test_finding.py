"""How a dialect is found by its name."""

import sys

import pytest

from handrail.dialects import wire_dialect
from handrail.errors import ConfigError


def test_a_wire_that_was_found_once_is_not_checked_again():
    found = wire_dialect("openai-chat")
    entered: list[str] = []
    sys.setprofile(
        lambda frame, event, _: (
            event == "call" and entered.append(frame.f_code.co_qualname)
        )
    )
    try:
        again = wire_dialect("openai-chat")
    finally:
        sys.setprofile(None)
    assert again is found
    assert "wire_dialect" in entered
    # which asks a protocol's every attribute of the object
    assert "_ProtocolMeta.__instancecheck__" not in entered


@pytest.mark.others
def test_a_prompt_is_refused_as_a_wire_every_time():
    for _ in range(2):
        with pytest.raises(ConfigError, match="prompt's dialect"):
            wire_dialect("hermes")
