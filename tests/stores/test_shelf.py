"""Runs and questions in memory."""

from __future__ import annotations

import time

import pytest

from handrail.ports import ApprovalStore, RunStore
from handrail.stores.shelf import Shelf
from tests.stores.run_contract import RunContract


class TestShelf(RunContract):
    @pytest.fixture
    def store(self):
        return Shelf(time.time)


def test_it_is_both_kinds_of_store():
    assert isinstance(Shelf(time.time), RunStore)
    assert isinstance(Shelf(time.time), ApprovalStore)
