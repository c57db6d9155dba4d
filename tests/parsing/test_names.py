import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.parsing import names as nearness
from handrail.parsing.names import nearest, resolve_name
from tests.support.corpus import CORPUS, rows

KNOWN = ["get_weather", "create_event", "write_to_file", "terminal", "user_info.get"]


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("get_weather", "get_weather"),
        ("functions.get_weather", "get_weather"),  # the recipient form of harmony
        ("functions.get_weather:0", "get_weather"),  # Kimi K2 counts its calls
        ("commentary to=functions.get_weather", "get_weather"),
        ("create_event<|channel|>analysis", "create_event"),
        ("<|start|>create_event", "create_event"),
        ("get_weather<｜tool▁sep｜>", "get_weather"),
        ("get_weather[ARGS]", "get_weather"),
        (" `get_weather` ", "get_weather"),
        ("get_weather()", "get_weather"),
        ("tools/get_weather", "get_weather"),
        ("default_api.get_weather", "get_weather"),
        ("user_info.get", "user_info.get"),  # a point of its own is no wrapping
    ],
)
def test_known_wrappings_are_taken_off(raw, meant):
    assert resolve_name(raw, KNOWN) == meant


@pytest.mark.parametrize(
    "raw",
    [
        "functions",
        "",
        "tool:execute_terminal",
        "write_file",
        "Get_Weather",
        "getweather",
        "x get_weather",
        "info.get",
    ],
)
def test_a_name_that_is_merely_like_a_known_one_is_not_resolved(raw):
    assert resolve_name(raw, KNOWN) is None


def test_a_tool_whose_own_name_looks_wrapped_wins():
    assert resolve_name("functions.get", ["functions.get", "get"]) == "functions.get"


@pytest.mark.parametrize(
    ("name", "names", "best"),
    [
        ("unit", ["units", "city"], "units"),
        ("write_file", ["read_file", "write_to_file"], "write_to_file"),
        ("GetWeather", ["get_weather", "set_weather"], "get_weather"),
        ("date", ["city", "start_date"], "start_date"),  # its word is in the other's
        ("die", ["diet", "side"], "diet"),
    ],
)
def test_the_nearest_name_comes_first(name, names, best):
    assert nearest(name, names)[0] == best


def test_a_far_name_has_no_nearest():
    assert nearest("colour", ["x", "amount"]) == []


def test_of_very_many_names_few_are_compared_and_the_nearest_is_among_them(monkeypatch):
    compared = []

    class Counting(nearness.SequenceMatcher):
        def set_seq1(self, a):
            compared.append(a)
            super().set_seq1(a)

    monkeypatch.setattr(nearness, "SequenceMatcher", Counting)
    many = [f"orders/2026/report-{number:05}.md" for number in range(20_000)]
    assert (
        nearest("orders/2026/reprot-17043.md", many)[0] == "orders/2026/report-17043.md"
    )
    # difflib itself sets an empty text first
    assert 0 < len(compared) <= nearness.MOST_SCORED + 1


def test_a_name_of_a_megabyte_is_compared_by_its_beginning():
    assert nearest("q" * 1_000_000, ["city"]) == []


@given(raw=st.text(), names=st.lists(st.text(max_size=20), max_size=5))
def test_what_is_resolved_is_known_and_what_is_near_too(raw, names):
    assert resolve_name(raw, names) in {None, *names}
    assert set(nearest(raw, names)) <= set(names)


@pytest.mark.skipif(
    not (CORPUS / "malformed/tool_names.jsonl").exists(), reason="the corpus is absent"
)
def test_the_damaged_names_of_the_corpus_are_resolved_or_refused():
    for row in rows("malformed/tool_names.jsonl"):
        assert resolve_name(row["raw_name"], row["tools"]) == row["intended"], row["id"]
