"""Gemini's Interactions API: what the contract does not know."""

from __future__ import annotations

from handrail.dialects.wires.interactions import DIALECT
from tests.dialects.contract import DialectContract


class TestInteractions(DialectContract):
    dialect = DIALECT
    last = b"interaction.completed"
    texts_survive = False
    stops_beside_calls = False
    counts_cache_writes = False
