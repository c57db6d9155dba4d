"""`make chaos` in small: it kills, it finds nothing, and it would find what is wrong."""

import json

import pytest
from benchmarks.chaos import chaos, judge

from tests.journeys.worlds import Far

RUNS = 40


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    """Runs that were killed at random and have all ended: their store, their world, and what was said of them."""
    folder = tmp_path_factory.mktemp("chaos")
    store = f"sqlite:///{folder}/chaos.db"
    verdict, kills = chaos(RUNS, store=store, folder=folder, seconds=60, seed=5)
    return store, folder, verdict, kills


def judged_again(survived, tmp_path, file, change):
    """Judge once more, with one file of the world changed."""
    store, folder, _, _ = survived
    far = Far(tmp_path)
    for name in ("effects", "asked", "ended", "order"):
        lines = Far(folder).lines(name)
        changed = change(lines) if name == file else lines
        (tmp_path / name).write_text("".join(f"{line}\n" for line in changed))
    return judge(store, far, [f"r_5_{number}" for number in range(RUNS)])


def test_runs_that_are_killed_at_random_repeat_nothing_and_lose_nothing(survived):
    _, _, verdict, kills = survived
    assert kills > 0
    assert (verdict.repeated, verdict.lost, verdict.unfinished) == ([], [], [])
    assert verdict.counts["writes"] == 3 * RUNS


def test_a_second_effect_would_be_found(survived, tmp_path):
    verdict = judged_again(
        survived,
        tmp_path,
        "effects",
        lambda lines: [*lines, f"- {lines[0].split()[-1]}"],  # under no key
    )
    assert len(verdict.repeated) == 1
    assert not verdict.is_sound


def test_an_effect_that_was_told_and_is_not_there_would_be_found(survived, tmp_path):
    titles = [line.split()[-1] for line in Far(survived[1]).lines("effects")]
    keyed = next(title for title in titles if title.endswith("key"))
    verdict = judged_again(
        survived,
        tmp_path,
        "effects",
        lambda lines: [line for line in lines if not line.endswith(keyed)],
    )
    assert [lost.split(":")[0] for lost in verdict.lost] == [keyed]


def test_what_was_done_on_a_result_that_the_journal_does_not_hold_would_be_found(
    survived, tmp_path
):
    def changed(lines):
        # the last time that a process asked for another ticket after it had asked the model
        for end in range(len(lines) - 1, -1, -1):
            process, file, text = lines[end].split(maxsplit=2)
            mark = f'{process} seen ["{text.rpartition("-")[0]}",'
            before = [n for n in range(end) if lines[n].startswith(mark)]
            if file == "asked" and before:
                break
        place = before[-1]
        *told, _ = json.loads(lines[place].split(maxsplit=2)[2])
        lines[place] = f"{process} seen {json.dumps([*told, 'something else'])}"
        return lines

    [lost] = judged_again(survived, tmp_path, "order", changed).lost
    assert "something else" in lost
