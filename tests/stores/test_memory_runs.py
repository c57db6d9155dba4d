"""Runs and questions in memory."""

from __future__ import annotations

import time

import pytest

from handrail.ports import ApprovalStore, RunStore
from handrail.stores.memory_runs import FullMemoryStore
from tests.stores.approval_contract import ApprovedClaimContract
from tests.stores.contract import StoreContract
from tests.stores.run_contract import RunContract
from tests.stores.scope_contract import ScopeContract


class TestMemoryOfficeRuns(RunContract):
    @pytest.fixture
    def store(self):
        return FullMemoryStore()


class TestMemoryOffice(StoreContract, ApprovedClaimContract, ScopeContract):
    has_locks = False  # among processes: there is one

    def open(self):
        self.passed_s = 0.0
        return FullMemoryStore(clock=lambda: time.time() + self.passed_s)

    def pass_time(self, seconds):
        self.passed_s += seconds


def test_it_is_both_kinds_of_store():
    assert isinstance(FullMemoryStore(), RunStore)
    assert isinstance(FullMemoryStore(), ApprovalStore)
