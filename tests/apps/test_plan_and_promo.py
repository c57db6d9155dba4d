"""Plan and promo: what both worlds hold afterwards."""

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples/apps/plan_and_promo.py"


@pytest.fixture
def worlds():
    return runpy.run_path(str(FILE))["main"]([])


def plans(service):
    return {
        name: (record["plan"], record["credit"])
        for name, record in service.records.items()
    }


def test_a_plain_loop_loses_writes(worlds, capsys):
    raced, _ = worlds
    assert plans(raced) == {"U1": ("free", 0), "U2": ("free", 0)}


def test_a_resource_keeps_every_write_in_the_models_order(worlds, capsys):
    _, kept = worlds
    assert plans(kept) == {"U1": ("team", 25), "U2": ("pro", 10)}


def test_two_users_were_served_side_by_side_and_one_user_never_twice_at_once(
    worlds, capsys
):
    _, kept = worlds
    assert kept.inside.most_inside == 2
    for name in ("U1", "U2"):
        steps = [line.split()[0] for line in kept.log if name in line]
        assert steps == ["GET", "PUT", "GET", "PUT"]
