"""Values that are equal by their type are one act: one form in keys, fingerprints and the guard of a run."""

import asyncio
import dataclasses
import enum
import ipaddress
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import handrail as hr
from handrail.errors import Code
from handrail.tools.keys import canonical
from handrail.tools.normal_form import as_text, normalize

ID = "0F8FAD5B-D9CB-469F-A165-70867728950E"


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Price(pydantic.BaseModel):
    amount: Decimal
    at: datetime | None = None


@dataclasses.dataclass
class Line:
    amount: Decimal
    on: date


class Pair(NamedTuple):
    amount: Decimal
    tags: frozenset[str]


# a type, and spellings of one value of it
EQUAL = [
    (Decimal, ["10.00", "10", 10, 10.0, "1E+1", "+10"]),
    (Decimal, ["0", "-0.00", 0, "0E+5"]),
    (Annotated[Decimal, Field(gt=0, max_digits=9)], ["10.50", 10.5, "10.500"]),
    (Decimal | None, ["10.00", "10", 10]),
    (float, [10, 10.0, 1e1]),
    (int, [10, 10.0]),
    (
        datetime,
        [
            "2026-03-01T10:00:00+02:00",
            "2026-03-01T08:00:00Z",
            "2026-03-01T08:00:00+00:00",
            "2026-03-01T03:00:00.000-05:00",
        ],
    ),
    (datetime, ["2026-03-01T08:00:00", "2026-03-01T08:00:00.000"]),
    (time, ["10:00:00+02:00", "08:00:00Z"]),
    (timedelta, ["PT24H", "P1D"]),
    (uuid.UUID, [ID, ID.lower(), f"urn:uuid:{ID}", ID.replace("-", "")]),
    (ipaddress.IPv6Address, ["2001:DB8:0:0::1", "2001:db8::1"]),
    (pydantic.AnyUrl, ["HTTPS://Example.org", "https://example.org/"]),
    (set[str], [["b", "a"], ["a", "b"]]),
    (frozenset[Decimal], [["1.0", "2"], [2, 1]]),
    (list[Decimal], [["1.0"], [1]]),
    (
        dict[str, datetime],
        [{"a": "2026-03-01T10:00:00+02:00"}, {"a": "2026-03-01T08:00:00Z"}],
    ),
    (Line, [{"amount": "1.0", "on": "2026-03-01"}, {"amount": 1, "on": "2026-03-01"}]),
    (list[Price | None], [[{"amount": "1.0"}], [{"amount": 1}]]),
]
DIFFERENT = [
    (str, ["007", "7"]),
    (Annotated[str, Field(pattern=r"\d+")], ["10", "10.0", "1e1"]),
    (str, ["Jos\u00e9", "Jose\u0301"]),  # the type says that they differ
    (Decimal, ["10", "10.01"]),
    (Decimal, ["1" + "0" * 39 + "1", "1" + "0" * 39 + "2"]),
    (datetime, ["2026-03-01T08:00:00", "2026-03-01T08:00:00Z"]),
    (list[str], [["b", "a"], ["a", "b"]]),
    (bytes, ["a", "b"]),
]


def effects_of(hint, values, **settings):
    """Carry out a write with each of these arguments in one run; return what the tool got."""
    got = []

    def act(value) -> str:
        """Act."""
        got.append(value)
        return "done"

    act.__annotations__["value"] = hint
    tool = hr.FunctionTool(act, effect="write", timeout_s=20, **settings)

    async def call_all():
        async with hr.Runtime([tool]) as runtime:
            for value in values:
                result = await runtime.call("act", {"value": value}, run="r")
                # the third equal call of a run is a circle
                assert result.ok or result.failure.code == Code.REPEATED_CALL, result

    asyncio.run(call_all())
    return got


IDENTITIES = [
    {},
    {"key": "act:{value}"},
    {"key": lambda value: f"act:{canonical(value)}"},
]
BY = ["the guard of a run", "a template", "a function"]


@pytest.mark.parametrize("settings", IDENTITIES, ids=BY)
@pytest.mark.parametrize(("hint", "values"), EQUAL)
def test_equal_values_of_a_type_are_one_act(hint, values, settings):
    assert len(effects_of(hint, values, **settings)) == 1


@pytest.mark.parametrize("settings", IDENTITIES, ids=BY)
@pytest.mark.parametrize(("hint", "values"), DIFFERENT)
def test_different_values_of_a_type_are_different_acts(hint, values, settings):
    assert len(effects_of(hint, values, **settings)) == len(values)


def test_numbers_of_a_json_schema_are_equal_by_their_value():
    def act(amount):
        got.append(amount)
        return "done"

    got = []
    parameters = {
        "type": "object",
        "properties": {"amount": {"type": "number"}},
        "required": ["amount"],
    }
    for key in (None, "act:{amount}"):
        tool = hr.FunctionTool(
            act,
            name="act",
            description="Act.",
            parameters=parameters,
            effect="write",
            key=key,
        )
        with hr.SyncRuntime([tool]) as runtime:
            for amount in (10, 10.0):
                assert runtime.call("act", {"amount": amount}, run="r").ok
    assert got == [10, 10]


def test_the_fields_of_a_model_that_is_the_only_parameter_are_normalized():
    def pay(price: Price) -> str:
        """Pay."""
        return "paid"

    tool = hr.FunctionTool(pay, effect="write", key="pay:{amount}")
    with hr.SyncRuntime([tool]) as runtime:
        assert runtime.call("pay", {"amount": "1.0"}).ok
        assert runtime.call("pay", {"amount": 1, "at": None}).replayed


def test_one_key_with_the_same_amount_is_no_conflict():
    def pay(order: str, amount: Decimal) -> str:
        """Pay."""
        return "paid"

    with hr.SyncRuntime(
        [hr.FunctionTool(pay, effect="write", key="pay:{order}")]
    ) as runtime:
        assert runtime.call("pay", {"order": "A", "amount": "10.00"}).ok
        assert runtime.call("pay", {"order": "A", "amount": 10}).replayed
        other = runtime.call("pay", {"order": "A", "amount": 11})
    assert other.failure.code == Code.IDEMPOTENCY_KEY_REUSED


def test_a_function_may_name_an_act_by_any_value_with_a_json_form():
    name = (Decimal("10.00"), datetime(2026, 3, 1, 8, tzinfo=UTC), Colour.RED)
    assert as_text(name) == '["10","2026-03-01T08:00:00Z","red"]'


@given(a=st.decimals(allow_nan=False), b=st.decimals(allow_nan=False))
def test_decimals_have_one_form_exactly_when_they_are_equal(a, b):
    assert (normalize(a) == normalize(b)) == (a == b)


@given(
    number=st.decimals(allow_nan=False, allow_infinity=False, places=3),
    zeros=st.integers(0, 50),
)
def test_zeros_at_the_end_of_a_decimal_say_nothing(number, zeros):
    sign, digits, exponent = number.as_tuple()
    longer = Decimal((sign, digits + (0,) * zeros, exponent - zeros))
    assert normalize(longer) == normalize(number)
    assert Decimal(normalize(number)) == number


# a day from either end of the calendar
_AT_LEAST = datetime(1, 1, 2, tzinfo=UTC).replace(tzinfo=None)
_AT_MOST = datetime(9999, 12, 30, tzinfo=UTC).replace(tzinfo=None)


@given(
    moment=st.datetimes(_AT_LEAST, _AT_MOST, timezones=st.just(UTC)),
    minutes=st.integers(-1439, 1439),
)
def test_an_instant_has_one_form_with_every_offset(moment, minutes):
    zone = timezone(timedelta(minutes=minutes))
    assert normalize(moment.astimezone(zone)) == normalize(moment)


def test_values_within_values_are_normalized():
    nested = Pair(Decimal("1.0"), frozenset({"b", "a"}))
    assert normalize({Level.HIGH: nested}) == {"3": ["1", ["a", "b"]]}


def test_bytes_that_are_no_text_have_a_form_that_no_text_has():
    assert normalize(b"__4=") == "__4="
    assert normalize(b"\xff\xfe") == {"base64": "//4="}


def test_a_mapping_whose_names_would_be_one_has_no_form():
    with pytest.raises(ValueError, match="written alike"):
        normalize({1: "a", "1": "b"})
