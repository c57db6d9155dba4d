"""Finding tools by words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.ports import Described, Ranking
from handrail.selectors.bm25 import DEPTH
from tests.selectors.tools import FEW, described, two_hundred


def names(hits):
    return [tool.name for tool in hits]


@pytest.mark.parametrize(("question", "wanted"), [
    ("What is the weather in Oslo?", "get_weather"),
    ("outputs of our power plants", "getPowerOutput"),
    ("I want my money back", "refund_order"),
    ("帮我查一下明天去上海的火车票", "query_train_ticket"),
    ("从哪个车站出发", "query_train_ticket"),
    ("exporting user info", "user_info.export"),
    ("A-17 account number", "user_info.export"),
])  # fmt: skip
def test_a_question_finds_its_tool(question, wanted):
    assert names(hr.selectors.bm25(FEW).top(question, k=1)) == [wanted]


def test_hits_are_the_tools_themselves_best_first():
    hits = hr.selectors.bm25(hr.Toolset(FEW)).top(
        "the weather of a city, or an order", k=5
    )
    assert hits[0] is FEW[0]
    assert isinstance(hr.selectors.bm25(FEW), Ranking)


def test_functions_are_taken_as_tools():
    def book_table(guests: int) -> str:
        """Book a table in a restaurant."""

    assert names(hr.selectors.bm25([book_table]).top("restaurant")) == ["book_table"]


@pytest.mark.parametrize("question", ["", "  ", "the of and", "42", "zebra", "?!"])
def test_a_question_without_a_telling_word_finds_nothing(question):
    assert hr.selectors.bm25(FEW).top(question) == []


@pytest.mark.parametrize("schema", [
    {"type": "object", "properties": {"trip": {"type": "object", "properties": {"airline": {}}}}},
    {"type": "object", "properties": {"trips": {"type": "array", "items": {"description": "An airline."}}}},
    {"type": "object", "properties": {"carrier": {"enum": ["airline", "railway"]}}},
    {"type": "object", "properties": {"carrier": {"anyOf": [{"properties": {"airline": True}}, {"type": "null"}]}}},
])  # fmt: skip
def test_words_deep_in_the_parameters_are_found(schema):
    tool = Described("book", "Book.", schema)
    assert hr.selectors.bm25([*FEW, tool]).top("which airline") == [tool]


def test_a_word_of_the_name_counts_more_than_one_of_a_parameter():
    by_parameter = described("send", "Send something.", weather="How it is sent.")
    assert (
        names(hr.selectors.bm25([by_parameter, *FEW]).top("weather"))[0]
        == "get_weather"
    )


def test_a_tag_in_the_users_language_finds_a_tool_in_another():
    plain = hr.selectors.bm25(FEW)
    tagged = [
        described(
            "get_weather",
            "Get the current weather of a city.",
            tags=["погода", "прогноз"],
        ),
        *FEW[1:],
    ]
    assert names(plain.top("Какая погода в Берлине?")) == []
    assert names(hr.selectors.bm25(tagged).top("Какая погода в Берлине?", k=1)) == [
        "get_weather"
    ]


def test_every_sentence_of_a_question_brings_its_own_tool():
    """As a whole it is about plants; three of the four tools for these fit it better than the refund does."""
    plants = [
        described(
            "plant_whole",
            "Report on turbines, boilers, emissions, maintenance, staffing and fuel.",
        ),
        described("plant_machines", "Report on turbines, boilers, maintenance."),
        described("plant_costs", "Report on maintenance, staffing and fuel."),
        described("plant_air", "Report on boilers, emissions and fuel."),
    ]
    question = "A report on turbines, boilers, emissions, maintenance, staffing and fuel. Then refund a customer."
    assert names(hr.selectors.bm25([*plants, *FEW]).top(question, k=2)) == [
        "plant_whole",
        "refund_order",
    ]


def test_of_several_tools_of_one_name_the_best_is_found_once():
    twins = [
        Described("note", text, {"type": "object"})
        for text in ("Write a note.", "Read a note from the archive.")
    ]
    assert hr.selectors.bm25([*twins, *FEW]).top("note in the archive") == [twins[1]]


def test_tags_do_not_make_the_words_of_the_tool_count_less():
    text = "Get the current weather of a city."
    tagged = described("get_weather", text, tags=["天气预报", "气象服务"])
    untagged = described("get_weather", text)
    scores = [
        [
            (tool.name, score)
            for tool, score in hr.selectors.bm25([first, *FEW[1:]]).top_with_scores(
                "weather, money, power"
            )
        ]
        for first in (tagged, untagged)
    ]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 3


def test_a_word_that_tools_are_named_after_counts_more_than_one_that_only_describes():
    """Three tools have each of both words, and the two that are compared have them in descriptions of one length."""
    one = described("first", "Uses an anchor.")
    other = described("again", "Uses a pebble.")
    others = [
        described("anchor_drop", "Go down."),
        described("anchor_lift", "Go up."),
        described("throw_far", "Pebble, pebble, pebble, pebble."),
        described("throw_near", "Pebble, pebble, pebble, pebble."),
    ]
    scored = hr.selectors.bm25([one, other, *others]).top_with_scores(
        "an anchor and a pebble", k=6
    )
    scores = {tool.name: score for tool, score in scored}
    assert scores["first"] > scores["again"]


def test_of_tools_with_the_same_words_the_one_that_has_them_side_by_side_is_first():
    apart = described("first", "The exchange of the usual rate.")
    together = described("second", "The usual exchange rate, and that.")
    assert names(
        hr.selectors.bm25([apart, together, *FEW]).top("exchange rate", k=2)
    ) == ["second", "first"]


def test_of_tools_with_the_same_words_the_one_of_the_shorter_name_is_first():
    special = described("beach_tide", "Tides.")
    general = described("tide", "Tides of a shore.")
    hits = hr.selectors.bm25([special, general, *FEW]).top("when is high tide", k=2)
    assert names(hits) == ["tide", "beach_tide"]
    hits = hr.selectors.bm25([special, general, *FEW]).top("tide at the beach", k=1)
    assert names(hits) == ["beach_tide"]


def test_numbers_do_not_make_a_name_longer():
    tools = [described(name, "Find a film.") for name in ("film_3_7", "film_b_x")]
    hits = hr.selectors.bm25([*tools, *FEW]).top_with_scores("film", k=2)
    assert [tool.name for tool, _ in hits] == ["film_3_7", "film_b_x"]
    assert hits[0][1] > hits[1][1]


def test_tools_beyond_those_that_are_looked_at_twice_come_after_them():
    many = [described(f"tool_{n:04}", "Open a valve.") for n in range(300)]
    scored = hr.selectors.bm25(many).top_with_scores("which valve", k=300)
    assert len(scored) == 300
    scores = [score for _, score in scored]
    assert scores == sorted(scores, reverse=True)
    assert scores[DEPTH - 1] > 2 * scores[DEPTH] > 0


# -- laws --------------------------------------------------------------------------------------------------------------

TWO_HUNDRED = two_hundred()
INDEX = hr.selectors.bm25(TWO_HUNDRED)
_WORDS = (
    "approve",
    "the",
    "lease",
    "of",
    "vehicles",
    "Hanoi",
    "list.",
    "Then",
    "survey,",
    "and",
    "budget",
    "合同",
)
_questions = st.lists(st.sampled_from(_WORDS), max_size=12).map(" ".join)


@given(_questions, st.permutations(TWO_HUNDRED[:40]))
def test_the_order_of_the_catalogue_does_not_matter(question, shuffled):
    assert hr.selectors.bm25(shuffled).top(question, 9) == hr.selectors.bm25(
        TWO_HUNDRED[:40]
    ).top(question, 9)


@given(_questions, st.integers(0, 30))
def test_more_hits_begin_with_the_fewer(question, k):
    assert INDEX.top(question, k) == INDEX.top(question, k + 1)[:k]


@given(_questions)
def test_scores_never_rise_and_names_never_repeat(question):
    scored = INDEX.top_with_scores(question, 50)
    assert [score for _, score in scored] == sorted(
        (score for _, score in scored), reverse=True
    )
    assert len({tool.name for tool, _ in scored}) == len(scored) <= 50


@given(st.sampled_from(TWO_HUNDRED))
def test_a_tools_own_name_finds_it_first(tool):
    assert INDEX.top(tool.name, 1) == [tool]


@given(_questions, st.text(alphabet="qxz", min_size=4, max_size=8))
def test_a_word_that_no_tool_has_changes_nothing(question, word):
    assert INDEX.top(f"{word} {question}", 10) == INDEX.top(f"{question}", 10)


def test_tools_that_are_alike_leave_room_for_what_else_was_asked_for():
    alike = [described(f"find_museum_{n}", "Find a museum.") for n in range(12)]
    table = described("reserve", "Reserve a table in a restaurant.")
    many = [described(f"tool_{n}", "Something else.") for n in range(20)]
    hits = hr.selectors.bm25([*alike, table, *many]).top(
        "find a museum with a table", k=12
    )
    assert table in hits
