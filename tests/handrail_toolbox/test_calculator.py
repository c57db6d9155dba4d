"""The calculator: exact, bounded, and helpful where it cannot read."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import handrail as hr
from handrail.testing.checklist import check
from handrail_toolbox.arithmetic import FUNCTIONS, MOST_BITS, format_exact
from handrail_toolbox.calculator import MOST_CHARACTERS, calculate, evaluate


def failure_of(expression):
    with pytest.raises(hr.ToolError) as raised:
        calculate(expression)
    return raised.value.failure


@pytest.mark.parametrize(("expression", "result"), [
    ("0.1 + 0.2", "0.3"),                    # a double says 0.30000000000000004
    ("2 * (3 + 4)", "14"),
    # as in Python and in books: the power binds stronger
    ("-2 ** 2", "-4"),
    ("2 ** 3 ** 2", "512"),                  # and from the right
    ("2 ** -1", "0.5"),
    ("-7 // 2", "-4"),
    ("-7 % 3", "2"),
    ("1_000 * 1e3", "1000000"),
    ("2.675 * 100", "267.5"),
    ("round(2.5) + round(3.5)", "6"),        # half to even
    ("round(1234.567, -2)", "1200"),
    ("9 ** 99 % 10", "9"),
    ("8 ** (1/3) + sqrt(0.25)", "2.5"),      # roots that are fractions stay exact
    ("log2(1024) + log(9, 3) + log10(0.001)", "9"),
    ("factorial(20) / factorial(18)", "380"),
    ("gcd(12, 18) + lcm(4, 6)", "18"),
    ("min(3, 1, 2) + max(3, 1, 2) + abs(-4)", "8"),
    ("floor(-1.5) + ceil(-1.5)", "-3"),
    ("２＋３×（４－５）÷２", "0.5"),
    ("-2 ** 0.5 * 0 + cos(0)", "1"),
])  # fmt: skip
def test_arithmetic_is_exact(expression, result):
    told = calculate(expression)
    assert told["result"] == result
    assert told["exact"] is (expression != "-2 ** 0.5 * 0 + cos(0)")


@pytest.mark.parametrize(("expression", "result"), [
    ("1 / 3", "0.333333333333333"),
    # 1.41421356237309504880 by table; the zero at the end says nothing
    ("sqrt(2)", "1.4142135623731"),
    ("exp(1)", "2.71828182845905"),
    ("ln(10)", "2.30258509299405"),
    ("sin(1)", "0.841470984807897"),         # 0.84147098480789650665
    ("atan(1) * 4", "3.14159265358979"),
    ("sqrt(2) ** 2 - 2", "0"),               # what cancels is the rounding alone
    # 2 ** 60; fifty digits all the way
    ("*".join(["sqrt(2)"] * 120), "1152921504606850000"),
    # whole numbers that were rounded on the way
    ("floor(sqrt(2) ** 2) + ceil(sqrt(3) ** 2)", "5"),
    ("sqrt(2) ** 2 // 1 + sqrt(3) ** 2 % 3", "2"),
    ("factorial(sqrt(3) ** 2)", "6"),
    ("sin(pi)", "0"),
    ("acos(-1) - pi", "0"),
    ("asin(0.5) * 6 - atan(1) * 4", "0"),
    ("atan(1e9) + atan(1e-9) - pi / 2", "0"),
    ("degrees(asin(sqrt(3) / 2))", "60"),
    ("cos(1e6)", "0.936752127533145"),       # the platform: 0.9367521275331447
    ("(1 + 0.05 / 365) ** 3650", "1.64866481376547"),  # ten years of daily interest
])  # fmt: skip
def test_a_result_without_an_end_is_rounded_and_says_so(expression, result):
    assert calculate(expression) | {"fraction": ""} == {
        "result": result,
        "exact": False,
        "fraction": "",
    }


def test_a_short_fraction_is_told_beside_its_rounding():
    assert calculate("1 / 3 + 1 / 6 + 1 / 7")["fraction"] == "9/14"


numbers = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=0, max_value=10**12, places=4
)
nodes = st.recursive(
    numbers.map(lambda number: (f"{number:f}", Fraction(number))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).filter(lambda each: each[1] != "/" or each[2][1])
    .map(lambda each: (f"({each[0][0]} {each[1]} {each[2][0]})", OF[each[1]](each[0][1], each[2][1]))),
    max_leaves=12,
)  # fmt: skip
OF = {
    "+": Fraction.__add__,
    "-": Fraction.__sub__,
    "*": Fraction.__mul__,
    "/": Fraction.__truediv__,
}


@given(nodes)
def test_any_expression_is_worth_what_fractions_say(node):
    text, expected = node
    assert evaluate(text).value == expected
    told = calculate(text)
    error = abs(Fraction(told["result"]) - expected)
    assert error == 0 if told["exact"] else error <= abs(expected) * Fraction(1, 10**14)


@given(st.integers(-(10**30), 10**30), st.integers(0, 40))
@example(-5, 3)
def test_what_is_written_reads_as_the_same_number(numerator, places):
    value = Fraction(numerator, 10**places)
    assert Fraction(format_exact(value)) == value


@given(st.floats(0.001, 1e4))
def test_functions_agree_with_those_of_the_platform(number):
    theirs = {"sin": math.sin, "cos": math.cos, "atan": math.atan, "ln": math.log, "sqrt": math.sqrt,
              "log10": math.log10}  # fmt: skip
    told = {name: float(evaluate(f"{name}({number!r})").value) for name in theirs}
    # Ours is of the decimal number as it is written, theirs of the double next to it.
    assert told == {
        name: pytest.approx(of(number), rel=1e-12, abs=1e-11)
        for name, of in theirs.items()
    }


@pytest.mark.parametrize(("expression", "advice"), [
    ("1,234.5 + 1", "without thousands separators"),
    ("2 ^ 10", "**"),
    ("5²", "5 ** 2"),
    ("200 * 15%", "15 / 100"),
    ("15% * 200", "15 / 100"),
    ("3 km * 2", "convert_units"),
    ("2(3 + 4)", "Write *"),
    ("3 x 4", "Write * between two factors: 3 * 4"),
    ("3X", "Write * between"),
    ("15% of 80", "15 / 100 * 80"),
    ("sqr(4)", "sqrt"),
    ("log(8)", "log(x, base)"),
    ("log(8, 2, 1)", "log(x, base)"),
    ("5!", "factorial(5)"),
    ("3万", "10000"),
    ("¥5 * 3", "currency"),
    ("tax * 5", "Names and units"),
    ("5 = 5", "without `=`"),
    ("(1 + 2", "to its end"),
    ("1 + 2)", "closing bracket"),
    ("sqrt 2", "sqrt(2)"),
    ("", "2 * (3 + 4)"),
    ("__import__('os')", "only numbers"),
    ("round(1, 2, 3)", "1 to 2 arguments"),
    ("factorial(2.5)", "round or floor"),
    ("1 / (2 - 2)", "divisor"),
    ("0 ** -1", "base"),
    ("0 ** -0.5", "base"),
    ("sin(0) ** -pi", "base"),
    ("(-8) ** 0.5", "cbrt"),
    ("sqrt(-1)", "sign"),
    ("ln(0)", "argument"),
    ("asin(2)", "between -1 and 1"),
    ("tan(pi / 2)", "radians"),
    ("sin(1e30)", "turns"),
    ("factorial(-1)", "sign"),
    ("round(1, 1000)", "round(x, 2)"),
])  # fmt: skip
def test_what_cannot_be_calculated_says_what_to_write_instead(expression, advice):
    failure = failure_of(expression)
    assert advice in failure.suggestion
    assert (failure.code, failure.retryable) == ("NOT_CALCULABLE", False)


@pytest.mark.parametrize("expression", [
    "9 ** 9 ** 9", "9 ** 9999", "factorial(10 ** 9)", "1e999999999", "1e4000", "10 ** 3600 * 10 ** 99", "exp(1e6)",
    "(-1.1) ** 1e9", "((2 ** 9999) ** 9999) ** 9999", "lcm(10 ** 3000 + 1, 10 ** 2999 + 7)", "tan(1e400)",
    "(" * 60 + "1" + ")" * 60, "-" * 500 + "1", "2 ** " * 60 + "1", "1+" * MOST_CHARACTERS + "1",
])  # fmt: skip
def test_what_would_grow_without_bound_is_refused_before_it_is_computed(expression):
    assert failure_of(expression)  # as computed, the first has 370 million digits


PRIMES = [n for n in range(2, 500) if all(n % other for other in range(2, n))]


@pytest.mark.parametrize(
    ("function", "term"), [("sum", "1 / {0} ** {1}"), ("lcm", "{0} ** {1}")]
)
def test_many_arguments_are_put_together_one_by_one_so_that_none_grows_beyond_what_fits(
    monkeypatch, function, term
):
    """Each of forty powers of primes fits; their common multiple has forty times as many bits."""
    widest = 0

    def noted(left, right):
        nonlocal widest
        widest = max(widest, left.bit_length(), right.bit_length())
        return real(left, right)

    # `Fraction` adds with the latter
    real = math.lcm if function == "lcm" else math.gcd
    terms = [
        term.format(prime, int(11_000 / math.log2(prime))) for prime in PRIMES[:40]
    ]
    operation = FUNCTIONS[function][2]
    with monkeypatch.context() as patched:
        patched.setattr(math, real.__name__, noted)
        with pytest.raises(hr.ToolError, match="digits"):
            operation(*(evaluate(each) for each in terms))
    assert widest <= 2 * MOST_BITS


texts = st.recursive(
    st.sampled_from(["0", "1", "2", "-7", "0.5", "1e-9", "1e3000", "pi", "99999"]),
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner
        ).map("({0[0]}{0[1]}{0[2]})".format),
        st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner).map(
            "{0[0]}({0[1]})".format
        ),
    ),
    max_leaves=8,
)


@given(st.one_of(st.text(max_size=40), texts))
@example("1e")
@example("\x00")
def test_any_text_has_a_value_or_a_sentence(text):
    try:
        assert calculate(text)["result"]
    except hr.ToolError as error:
        assert error.failure.suggestion


def test_it_declares_what_it_does():
    assert (calculate.effect, calculate.blocking) == ("read", False)
    assert (hr.lint([calculate]).findings, check([calculate]).missing) == ([], [])
