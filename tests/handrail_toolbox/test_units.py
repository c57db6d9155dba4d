"""Units are converted by the definitions of the tables, and never guessed."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.testing.checklist import check
from handrail_toolbox.units import _UNITS, convert, convert_units, unit


@pytest.mark.parametrize(("value", "from_unit", "to_unit", "result"), [
    (1, "mi", "km", "1.609344"),                 # NIST SP 811, B.8
    (1, "lb", "kg", "0.45359237"),               # NIST SP 811, B.8
    (1, "acre", "m^2", "4046.8564224"),          # international foot
    (1, "gal", "L", "3.785411784"),              # 231 cubic inches
    (1, "impgal", "L", "4.54609"),               # Weights and Measures Act 1985
    (1, "atm", "kPa", "101.325"),
    (1, "kWh", "MJ", "3.6"),
    (1, "kcal", "kJ", "4.184"),
    (1, "ly", "km", "9460730472580.8"),          # IAU: Julian year times c
    (1, "au", "m", "149597870700"),              # IAU 2012
    (90, "km/h", "m/s", "25"),
    (25, "m/s", "公里/小时", "90"),
    (1, "MiB", "kB", "1048.576"),                # IEC 80000-13
    (100, "Mbit/s", "MB/s", "12.5"),
    (1, "kg*m/s^2", "N", "1"),
    (1, "N*m", "J", "1"),
    (1, "m³", "L", "1000"),
    (1, "square meter", "cm2", "10000"),
    (5, "平方公里", "公顷", "500"),
    (3, "斤", "kg", "1.5"),
    (6, "千瓦时", "MJ", "21.6"),
    (1, "light year", "ly", "1"),
    (2, "Hours", "min", "120"),
    (3, "FEET", "yd", "1"),
    (15, "%", "one", "0.15"),
    (0.5, "turn", "°", "180"),
    (-40, "°C", "°F", "-40"),
    (98.6, "F", "C", "37"),
    (0, "K", "摄氏度", "-273.15"),
    (491.67, "degR", "C", "0"),
])  # fmt: skip
def test_a_conversion_is_exact(value, from_unit, to_unit, result):
    assert convert_units(value, from_unit, to_unit) == {
        "result": result,
        "exact": True,
        "unit": to_unit,
    }


def test_a_conversion_without_an_end_is_rounded_and_says_so():
    told = convert_units(100, "km/h", "m/s")
    assert told == {
        "result": "27.7777777777778",
        "exact": False,
        "fraction": "250/9",
        "unit": "m/s",
    }


@pytest.mark.parametrize(("value", "from_unit", "to_unit", "advice"), [
    (1, "ton", "kg", "tonne"),
    (1, "years", "d", "julianyear"),
    (1, "month", "d", "28 to 31"),
    (1, "加仑", "L", "impgal"),
    (1, "gb", "B", "GiB"),
    (1, "kilometr", "m", "`metre`"),
    (1, "kw", "W", "`kW`"),
    # siemens is not in the table, and case has a meaning
    (1, "mS", "s", "`ms`"),
    (1, "furlong", "m", "usual symbol"),
    (1, "USD", "EUR", "usual symbol"),
    (1, "km", "kg", "same kind"),
    (5, "min/km", "km/h", "1 / 5"),
    (1, "J/°C", "J/K", "K for a difference"),
    (-300, "C", "K", "-273.15"),
    (1, "", "m", "usual symbol"),
    (1, "m//s", "m", "`"),
    (1, "m^9", "m", "`m`"),
    (1, "km" * 99, "m", "usual symbol"),
    # 10 ** 4200 and more
    (1.7e308, "*".join(["EJ6"] * 12), "*".join(["aeV6"] * 12), "smaller numbers"),
])  # fmt: skip
def test_a_unit_with_two_meanings_or_none_is_not_guessed(
    value, from_unit, to_unit, advice
):
    with pytest.raises(hr.ToolError) as raised:
        convert_units(value, from_unit, to_unit)
    assert advice in raised.value.failure.suggestion


named = st.sampled_from(sorted(_UNITS))


@given(named, named, st.fractions(1, 10**9))
def test_there_and_back_is_the_same_value(one, other, value):
    if unit(one).powers == unit(other).powers and not unit(one).zero:
        there = convert(value, one, other)
        assert convert(there, other, one) == value


@given(st.text(max_size=30))
def test_any_text_is_a_unit_or_refused(text):
    try:
        assert unit(text).size > 0
    except hr.ToolError as error:
        assert error.failure.code == "UNKNOWN_UNIT"


def test_every_name_of_the_table_is_read_as_its_own_unit():
    assert {name: unit(name) for name in _UNITS} == _UNITS


def test_a_number_from_json_is_taken_as_it_is_written(drive):
    result = drive([convert_units]).call(
        "convert_units", {"value": 0.1, "from_unit": "m", "to_unit": "cm"}
    )
    assert result.value == {"result": "10", "exact": True, "unit": "cm"}
    assert Fraction(0.1) * 100 != 10


def test_it_declares_what_it_does():
    assert (hr.lint([convert_units]).findings, check([convert_units]).missing) == (
        [],
        [],
    )
