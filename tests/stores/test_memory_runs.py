"""Runs and questions in memory."""

from __future__ import annotations

import time

import pytest

from handrail.ports import ApprovalStore, RunStore
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing.contracts.approvals import ApprovedClaimContract
from handrail.testing.contracts.runs import RunContract
from handrail.testing.contracts.scopes import ScopeContract
from handrail.testing.contracts.stores import StoreContract


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
