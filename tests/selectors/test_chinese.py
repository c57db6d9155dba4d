"""Questions in Chinese, over tools whose names and texts are in English or say it in another way."""

import doctest
from importlib.resources import files

import pytest

import handrail as hr
from handrail.selectors import chinese, traditional
from handrail.selectors.terms import words
from handrail.selectors.traditional import simplify
from tests.selectors.tools import FEW, described

ENGLISH = [
    described("get_weather_forecast", "Weather of a city on a day.", city="A city."),
    described("list_orders", "Orders of a customer.", customer_id="The customer."),
    described("trackParcel", "Where a shipment is now.", number="Its number."),
    described("book_hotel", "Reserve a room.", nights="How many nights."),
    described("search_flights", "Flights between two airports.", date="The day."),
    described("create_invoice", "Bill a customer.", amount="In cents."),
    described("translate_text", "Put a text into another language.", text="A text."),
    described("calculateMortgage", "Monthly rate of a loan.", years="Its term."),
    described("find_recipe", "Dishes for given ingredients.", ingredients="Food."),
    described("reset_password", "Send a new password.", account="Whose."),
    described("convert_currency", "At today's exchange rate.", amount="How much."),
    described("schedule_meeting", "Invite people.", participants="Who comes."),
]
"""No two of them are about the same, and none has a Chinese word."""


def first(tools, question):
    return hr.selectors.bm25(tools).top(question, 1)[0].name


@pytest.mark.parametrize(("question", "name"), [
    ("明天会下雨吗？看看天气预报", "get_weather_forecast"),
    ("帮我查一下客户的订单", "list_orders"),
    ("我的包裹到哪里了", "trackParcel"),
    ("订一家酒店", "book_hotel"),
    ("查询去上海的航班", "search_flights"),
    ("给他开一张发票", "create_invoice"),
    ("把这段话翻译成法语", "translate_text"),
    ("房贷每个月要还多少", "calculateMortgage"),
    ("有什么菜谱用得上这些食材", "find_recipe"),
    ("忘记密码了怎么办", "reset_password"),
    ("一百美元能兑换多少", "convert_currency"),
    ("安排下周的会议", "schedule_meeting"),
    ("幫我查一下客戶的訂單", "list_orders"),  # traditional characters
    ("查詢去紐約的航班", "search_flights"),
    ("帮我 book 一个房间", "book_hotel"),  # both languages in one question
    ("invoice 发票", "create_invoice"),
])  # fmt: skip
def test_a_chinese_question_finds_an_english_tool(question, name):
    assert first(ENGLISH, question) == name


def test_a_tool_that_says_it_in_chinese_comes_before_one_that_says_it_in_english():
    tools = [*ENGLISH, described("weather_zh", "查询城市的天气预报")]
    assert first(tools, "北京的天气预报") == "weather_zh"


@pytest.mark.parametrize(("text", "question"), [
    ("预订酒店", "附近有没有宾馆"), ("查询快递的状态", "包裹什么时候送到"), ("计算平均值", "这些数的均值"),
])  # fmt: skip
def test_another_word_for_the_same_finds_the_tool(text, question):
    tool = described("tool", text)
    assert hr.selectors.bm25([*FEW, tool]).top(question, 1) == [tool]


@pytest.mark.parametrize(("one", "other"), [
    ("查詢訂單的狀態", "查询订单的状态"), ("預訂飯店", "预订饭店"), ("臺北的颱風", "台北的台风"),
])  # fmt: skip
def test_traditional_and_simplified_characters_are_the_same_words(one, other):
    assert words(one) == words(other)
    assert first([*FEW, described("tool", one)], other) == "tool"


def test_the_longest_word_is_taken():
    assert list(chinese.find_synonyms("信用卡账单")) == ["信用卡", "账单"]
    assert list(chinese.find_synonyms("人工智能的人")) == ["人工智能"]


@pytest.mark.parametrize("text", ["", "weather", "погода", "龘龘", "12 ，。"])
def test_a_text_without_a_listed_word_has_no_synonyms(text):
    assert chinese.find_synonyms(text) == {}


def test_a_question_without_chinese_reads_no_dictionary():
    chinese._dictionary.cache_clear()
    hr.selectors.bm25(FEW).top("the weather in Zürich")
    assert chinese._dictionary.cache_info().misses == 0


def test_each_line_has_words_of_both_languages():
    text = files("handrail.selectors").joinpath("chinese.txt").read_text("utf-8")
    for line in text.splitlines():
        found = line.split()
        if not found or line.startswith("#"):
            continue
        english = [word for word in found if word.isascii()]
        assert all(word.isalpha() and word.islower() for word in english), line
        assert 0 < len(english) < len(found) == len(set(found)), line
        assert all(
            "\u4e00" <= char <= "\u9fff" for word in found if word not in english for char in word
        ), line  # fmt: skip
        assert simplify(line) == line


def test_each_traditional_character_becomes_one_that_simplified_chinese_has():
    """GB 2312 holds the simplified characters in use, and of the traditional ones only three that it has beside."""
    table = traditional._TABLE
    assert "".join(map(chr, table.values())).encode("gb2312")
    assert not table.keys() & table.values()
    kept = {chr(code) for code in table if chr(code).encode("gb2312", "ignore")}
    assert kept == set("後徵夥")


@pytest.mark.parametrize("module", [chinese, traditional])
def test_the_examples_in_the_texts_are_true(module):
    assert doctest.testmod(module).failed == 0
