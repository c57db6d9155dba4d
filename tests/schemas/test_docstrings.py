import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.schemas import docstrings
from handrail.schemas.docstrings import Docs, read_docstring

GOOGLE = """Get the current weather of a city. Use it for today only.

    It is read from the nearest station.

    Args:
        city (str): City name such as "北京" or
            "Paris": never a code.
        unit: Unit of the temperature.

    Returns:
        dict: Temperature and sky.

    Raises:
        LookupError: No such city.

    Note:
        Not for forecasts.

    Examples:
        >>> get_weather("Paris")
    """

NUMPY = """Add two numbers.

    Parameters
    ----------
    a, b : int
        The numbers.

    Returns
    -------
    int
        The sum.
    """

SPHINX = """Add two numbers.

    :param a: The first.
    :param int b: The second.
    :returns: The sum.
    :raises OverflowError: Too large.
    """

CHINESE = """查询城市的当前天气。只用于今天。

    参数：
        city：城市名，例如“北京”
        unit（str）：温度单位，默认：celsius

    返回：
        温度和天气

    异常：
        LookupError：没有这个城市

    示例：
        get_weather("北京")
    """

CHINESE_NUMPY = """两数相加。

    参数
    ----
    a : int
        第一个数

    返回值
    ------
    int
        和
    """


def test_a_google_docstring_is_taken_apart():
    docs = read_docstring(GOOGLE)
    assert docs.summary == "Get the current weather of a city."
    assert docs.parameters == {
        "city": 'City name such as "北京" or "Paris": never a code.',
        "unit": "Unit of the temperature.",
    }
    assert docs.returns == "Temperature and sky."
    assert docs.raises == {"LookupError": "No such city."}
    assert docs.examples == ('>>> get_weather("Paris")',)


def test_prose_below_a_section_joins_the_description():
    description = read_docstring(GOOGLE).description
    assert description.startswith(
        "Get the current weather of a city. Use it for today only."
    )
    assert "nearest station" in description
    assert description.endswith("Note:\n    Not for forecasts.")


def test_a_numpy_docstring_is_taken_apart():
    docs = read_docstring(NUMPY)
    assert docs.description == "Add two numbers."
    assert docs.parameters == {"a": "The numbers.", "b": "The numbers."}
    assert docs.returns == "The sum."


def test_a_sphinx_docstring_is_taken_apart():
    docs = read_docstring(SPHINX)
    assert docs.description == "Add two numbers."
    assert docs.parameters == {"a": "The first.", "b": "The second."}
    assert docs.returns == "The sum."
    assert docs.raises == {"OverflowError": "Too large."}


def test_chinese_headings_and_full_width_colons_are_read():
    docs = read_docstring(CHINESE)
    assert docs.summary == "查询城市的当前天气。"
    assert docs.description == "查询城市的当前天气。只用于今天。"
    assert docs.parameters == {
        "city": "城市名，例如“北京”",
        "unit": "温度单位，默认：celsius",
    }
    assert docs.returns == "温度和天气"
    assert docs.raises == {"LookupError": "没有这个城市"}
    assert docs.examples == ('get_weather("北京")',)


def test_chinese_headings_are_read_in_numpy_style():
    docs = read_docstring(CHINESE_NUMPY)
    assert (docs.description, docs.parameters, docs.returns) == (
        "两数相加。",
        {"a": "第一个数"},
        "和",
    )


@pytest.mark.parametrize(
    "heading", ["参数：", "参数:", "参数", "输入参数：", "参数说明："]
)
@pytest.mark.parametrize(
    "item",
    [
        "city：城市名",
        "city: 城市名",
        "- city：城市名",
        "`city`：城市名",
        "  city（str）：城市名",
    ],
)
def test_items_are_read_however_they_are_marked(heading, item):
    colon = heading.endswith((":", "："))
    docs = read_docstring(
        f"查询。\n\n{heading}\n{item}\n"
        if colon
        else f"查询。\n\n{heading}：\n{item}\n"
    )
    assert docs.parameters == {"city": "城市名"}
    assert docs.description == "查询。"


@pytest.mark.parametrize("said", ["返回：天气", "返回值: 天气", "Returns: 天气"])
def test_what_is_returned_may_stand_on_the_line_of_its_heading(said):
    assert read_docstring(f"查询。\n\n{said}").returns == "天气"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("Get it. Then go.", "Get it."),
        # a point within a number ends nothing
        ("Cut at 0.5 seconds. Then go.", "Cut at 0.5 seconds."),
        ("Takes a city, e.g. Paris. Then goes.", "Takes a city, e.g. Paris."),
        ("取得天气。然后返回。", "取得天气。"),
        ("No full stop\n\nMore.", "No full stop"),
        ("Two\nlines. More.", "Two lines."),
        ("", ""),
    ],
)
def test_the_summary_is_the_first_sentence(text, summary):
    assert read_docstring(text).summary == summary


@pytest.mark.parametrize(
    "text",
    [
        "Just text.",
        "Ends with :rocket: here",
        "See https://example.org/a:b",
        "a: b\nc: d",
    ],
)
def test_a_docstring_without_sections_is_all_description(text):
    assert read_docstring(text) == Docs(
        summary=read_docstring(text).summary, description=text
    )


def test_a_line_after_a_blank_one_ends_a_section_that_is_not_indented():
    docs = read_docstring("查询。\n\n参数：\ncity：城市名\n\n注意：只用于今天。")
    assert (docs.parameters, docs.description) == (
        {"city": "城市名"},
        "查询。\n\n注意：只用于今天。",
    )


def test_a_broken_section_is_kept_as_description():
    assert (
        read_docstring("Do it.\n\nArgs:\nthis is no item").description
        == "Do it.\n\nthis is no item"
    )


@given(
    st.lists(
        st.sampled_from(
            [
                "Args:",
                "参数：",
                "x: y",
                "  x：y",
                "  more",
                "",
                "Returns:",
                "text.",
                "Note:",
            ]
        ),
        unique=True,
    )
)
def test_no_prose_is_lost_among_sections(lines):
    docs = read_docstring("\n".join(lines))
    everything = " ".join(
        [
            docs.description,
            docs.returns,
            *docs.parameters.values(),
            *docs.raises.values(),
            *docs.examples,
        ]
    )
    assert "text." in everything or "text." not in lines


@given(st.text())
def test_no_text_raises(text):
    assert isinstance(read_docstring(text), Docs)


def test_no_docstring_is_an_empty_one():
    assert read_docstring(None) == Docs()


item_names = st.sampled_from(
    ["city", "_x", "城市", "a1", "a b", "*args", "`n`", "Args"]
)
item_texts = st.sampled_from(
    [
        "City name.",
        "one: two",
        "(str): x",
        " x",
        "",
        "默认：1",
        "Defaults to 3.",
        "Raises:",
    ]
)
item_lines = st.one_of(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["    ", "    ", "  ", "", "        "]),
        item_names,
        st.sampled_from([": ", ": ", ":", " (int): ", "：", " - "]),
        item_texts,
    ),
    st.sampled_from(["", "    more text", "Returns:", "Raises:", "Prose."]),
)


def read_by_parser(text):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(docstrings, "_is_clean", lambda text: False)
        patched.setattr(docstrings, "_read_plain_docstring", lambda text: None)
        patched.setattr(docstrings, "_parse_plain_sections", lambda sections: None)
        return read_docstring(text)


@given(st.lists(item_lines, max_size=5))
def test_plain_sections_are_read_as_the_parser_reads_them(lines):
    text = "\n".join(["Do it.", "", "Args:", *lines])
    assert read_docstring(text) == read_by_parser(text)


prose_lines = st.sampled_from(
    ["", "Do it. Then more.", "  indented", "\ttabbed", "    x: one", "Args:", "参数：", " Args:", "Args", "-----",
     "Parameters", ":param x: one", "x: y", "Returns: text", "Note:", "one\rtwo", "one\u2028Args:", "one\x0c"]
)  # fmt: skip


@given(st.lists(prose_lines, max_size=4), st.lists(item_lines, max_size=4))
def test_plain_docstrings_are_read_as_the_parser_reads_them(prose, items):
    text = "\n".join([*prose, "Args:", *items])
    assert read_docstring(text) == read_by_parser(text)
    text = "\n".join(prose)
    assert read_docstring(text) == read_by_parser(text)


@given(st.text("ab \n\t\r.:-\u2028", max_size=30))
def test_a_text_that_counts_as_clean_is(text):
    if text and docstrings._is_clean(text):
        assert inspect.cleandoc(text) == text
