"""Conversion between units of measurement, exactly.

    runtime = hr.Runtime([convert_units])

A unit is a number and powers of base quantities; `km/h`, `kg*m/s^2` and `m3` are products of those in the table, so
only units with a name of their own need a row. Every factor is exact by definition, as a fraction.

Sources of the factors: the SI Brochure, 9th edition (BIPM 2019, with tables 4, 5 and 8 and the prefixes of table 7);
NIST SP 811 (2008), appendix B, for units of inch and pound (1 in = 2.54 cm, 1 lb = 0.45359237 kg since 1959);
IEC 80000-13 (2008) for bits and bytes; GB/T 3100 and the Chinese market units for 斤, 两, 里 and 亩.

Rule 1: a name with two meanings is refused with both: a ton is a tonne, a short ton or a long ton, and a guess is wrong
        by a tenth.
Rule 2: a temperature on a scale is alone; within a product (`J/K`) only the difference is meant, in kelvin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from msgspec import Struct

from handrail.errors import ToolError
from handrail.parsing.names import nearest
from handrail.tools.function_tool import tool
from handrail.tools.settings import Sends
from handrail_toolbox.arithmetic import Number, require_fit
from handrail_toolbox.calculator import Result, as_result

Powers: TypeAlias = tuple[int, ...]
"""Seven of them: of length, mass, time, temperature, current, angle and information."""

_QUANTITIES: Mapping[Powers, str] = {
    (0, 0, 0, 0, 0, 0, 0): "plain number", (1, 0, 0, 0, 0, 0, 0): "length", (2, 0, 0, 0, 0, 0, 0): "area",
    (3, 0, 0, 0, 0, 0, 0): "volume", (0, 1, 0, 0, 0, 0, 0): "mass", (0, 0, 1, 0, 0, 0, 0): "time",
    (0, 0, -1, 0, 0, 0, 0): "frequency", (1, 0, -1, 0, 0, 0, 0): "speed", (-1, 0, 1, 0, 0, 0, 0): "pace",
    (1, 0, -2, 0, 0, 0, 0): "acceleration", (0, 0, 0, 1, 0, 0, 0): "temperature", (1, 1, -2, 0, 0, 0, 0): "force",
    (-1, 1, -2, 0, 0, 0, 0): "pressure", (2, 1, -2, 0, 0, 0, 0): "energy", (2, 1, -3, 0, 0, 0, 0): "power",
    (-3, 1, 0, 0, 0, 0, 0): "density", (0, 0, 0, 0, 1, 0, 0): "electric current", (0, 0, 0, 0, 0, 1, 0): "angle",
    (0, 0, 0, 0, 0, 0, 1): "information", (0, 0, -1, 0, 0, 0, 1): "data rate",
}  # fmt: skip


class Unit(Struct, frozen=True):
    """A unit: how many of the base units it is (metre, kilogram, second, kelvin, ampere, degree, bit).

    Attributes:
        zero: Where its scale begins, in kelvin; of degrees Celsius and Fahrenheit only.
    """

    size: Fraction
    powers: Powers
    zero: Fraction = Fraction(0)

    @property
    def quantity(self) -> str:
        """What it measures, in a word where there is one."""
        return _QUANTITIES.get(self.powers, "quantity of its own kind")


# ---------------------------------------------------------------------- the tool


@tool(
    effect="read",
    sends=Sends(trust="trusted"),
    timeout_s=5,
    blocking=False,
    aliases=("单位换算", "单位转换", "换算", "公里", "英里", "华氏", "摄氏"),
    examples=[
        {"value": 26.2, "from_unit": "mi", "to_unit": "km"},
        {"value": 98.6, "from_unit": "°F", "to_unit": "°C"},
    ],
)
def convert_units(value: float, from_unit: str, to_unit: str) -> Result:
    """Convert a value from one unit of measurement to another, exactly. Use it for lengths, areas, volumes, masses,
    times, speeds, temperatures, pressures, energies, powers, angles and data sizes; not for currencies, time zones or
    dates.

    Args:
        value: How many of `from_unit`, such as 42.195.
        from_unit: Unit of the value, such as "mi", "km/h", "m^2", "kWh", "°F" or "斤".
        to_unit: Unit that is wanted, of the same kind, such as "km" or "m/s".

    Returns:
        `result` as text with the unit in `unit`; `exact` tells whether it is written out in full.
    """
    result = convert(Fraction(repr(value)), from_unit, to_unit)
    return {**as_result(require_fit(Number(result))), "unit": to_unit.strip()}


def convert(value: Fraction, from_unit: str, to_unit: str) -> Fraction:
    """Return `value` of one unit in another.

    >>> convert(Fraction(26), "mi", "km")
    Fraction(653796, 15625)

    Raises:
        ToolError: A unit is unknown, means two things, or the two do not measure the same.
    """
    source = unit(from_unit)
    target = unit(to_unit)
    if source.powers != target.powers:
        message = (
            f"`{from_unit}` measures {source.quantity}, `{to_unit}` {target.quantity}."
        )
        upside_down = any(source.powers) and source.powers == tuple(
            -each for each in target.powers
        )
        advice = f"Calculate 1 / {float(value):g} first; its unit is that of `{from_unit}` upside down."
        raise ToolError(
            "UNITS_DIFFER",
            message,
            suggestion=advice if upside_down else "Name two of the same kind.",
        )
    base = value * source.size + source.zero
    if base < 0 and (source.zero or target.zero):
        raise ToolError(
            "NOT_CALCULABLE",
            f"{float(value):g} {from_unit} is below absolute zero.",
            suggestion="Check the value and its unit; absolute zero is -273.15 °C.",
        )
    return (base - target.zero) / target.size


def unit(text: str) -> Unit:
    """Return the unit that a text names, such as `km`, `kg*m/s^2` or `平方米`.

    Raises:
        ToolError: It names none, or two.
    """
    if len(text) > _MOST_CHARACTERS:
        raise _unknown(text[:20] + "...")
    plain = _plain(text)
    if entry := _lookup(plain) or _lookup(plain.replace(" ", "")):
        return entry
    size = Fraction(1)
    powers = _NO_POWERS
    for part, power in _factors(plain, text):
        size *= part.size**power
        powers = tuple(
            old + power * new for old, new in zip(powers, part.powers, strict=True)
        )
    return Unit(size, powers)


# ---------------------------------------------------------------------- reading

_MOST_CHARACTERS = 60
_MOST_POWER = 6
_NO_POWERS: Powers = (0,) * 7
_OFTEN_IN_CAPITALS = {
    "km",
    "cm",
    "mm",
    "kg",
    "ft",
    "mi",
    "lb",
    "lbs",
    "oz",
    "yd",
    "in",
    "hr",
    "kmh",
}
_SAME = str.maketrans({"µ": "μ", "°": "deg", "º": "deg", "℃": "degC", "℉": "degF", "·": "*", "×": "*", "⋅": "*",
                       "÷": "/", "／": "/", "²": "2", "³": "3", "⁻": "-", "¹": "1", "Å": "angstrom",})  # fmt: skip
_FACTOR = re.compile(
    r"(?P<sign>[*/]?)(?P<name>[^\d\s*/^-]+)(?:\^|\*\*)?(?P<power>-?\d)?"
)
_TIMES_CHINESE = re.compile(r"^(平方|立方)(.+)$")
_CHINESE_POWERS: Mapping[str, int] = {"平方": 2, "立方": 3}


def _plain(text: str) -> str:
    """Return a unit's text in one spelling. A superscript has one meaning here, unlike in a number."""
    plain = text.strip().translate(_SAME)
    plain = re.sub(r"\bper\b|每", "/", plain)
    plain = re.sub(
        r"\b(square|sq|cubic|cu)\.? +(\w+)",
        lambda m: f"{m[2]}{3 if m[1][0] == 'c' else 2}",
        plain,
    )
    return re.sub(r"\s*([*/^])\s*", r"\1", plain).replace("_", " ")


def _factors(plain: str, text: str) -> Iterator[tuple[Unit, int]]:
    """Give each unit of a product and its power; what is divided by has a negative one."""
    at = 0
    while at < len(plain) or not at:
        match = _FACTOR.match(plain, at)
        if match is None or bool(at) != bool(match["sign"]):
            raise _unknown(text)
        power = int(match["power"] or 1)
        if not 0 < abs(power) <= _MOST_POWER:
            raise _unknown(text)
        yield _factor(match["name"]), -power if match["sign"] == "/" else power
        at = match.end()


def _factor(name: str) -> Unit:
    if entry := _lookup(name):
        if entry.zero:
            message = f"`{name}` is a point on a scale, which cannot be multiplied or divided."
            raise ToolError(
                "UNKNOWN_UNIT",
                message,
                suggestion="Write K for a difference in temperature: J/K.",
            )
        return entry
    raise _unknown(name)


def _lookup(name: str) -> Unit | None:
    """Return the unit of one name: as it is written, with an SI prefix, then without regard to case and plural."""
    if name in _TWO_MEANINGS:
        message = f"`{name}` has more than one meaning."
        raise ToolError(
            "UNKNOWN_UNIT", message, suggestion=f"Write {_TWO_MEANINGS[name]}."
        )
    for spelling in _spellings(name):
        if spelling in _TWO_MEANINGS:
            return _lookup(spelling)
        if entry := _UNITS.get(spelling) or _with_prefix(spelling):
            return entry
    if chinese := _TIMES_CHINESE.match(name):
        inner = _lookup(chinese[2])
        power = _CHINESE_POWERS[chinese[1]]
        return inner and Unit(
            inner.size**power, tuple(power * each for each in inner.powers)
        )
    return None


def _spellings(name: str) -> Iterator[str]:
    """Give a name as it is, then in small letters and singular where it is a word: in a symbol, case has a meaning."""
    yield name
    small = name.lower()
    if len(name) > 3 or (name.isupper() and small in _OFTEN_IN_CAPITALS):
        yield from (small, small.removesuffix("s"), small.removesuffix("es"))


def _with_prefix(name: str) -> Unit | None:
    for prefix, factor in _PREFIXES.items():
        base = name[len(prefix) :]
        if (
            name.startswith(prefix)
            and base in _TAKE_PREFIXES
            and (prefix not in _BINARY or base in _INFORMATION)
        ):
            found = _UNITS[base]
            return Unit(found.size * factor, found.powers)
    return None


def _unknown(name: str) -> ToolError:
    same = [
        p + base
        for p in _PREFIXES
        for base in _TAKE_PREFIXES
        if (p + base).lower() == name.lower()
    ]
    near = same or nearest(name, _UNITS)
    if near:
        advice = f"Did you mean {' or '.join(f'`{each}`' for each in near)}?"
    else:
        advice = "Write the usual symbol, such as m, kg, h, degC, kWh or MB, or a product of them, such as km/h or m^2."
    return ToolError(
        "UNKNOWN_UNIT", f"`{name}` is no unit that is known here.", suggestion=advice
    )


# ---------------------------------------------------------------------- the table

_PREFIXES: Mapping[str, Fraction] = {
    text: Fraction(base) ** power
    for names, base, power in (
        ("Ki kibi", 1024, 1), ("Mi mebi", 1024, 2), ("Gi gibi", 1024, 3), ("Ti tebi", 1024, 4), ("Pi pebi", 1024, 5),
        ("da deca", 10, 1), ("h hecto", 10, 2), ("k K kilo 千", 10, 3), ("M mega 兆", 10, 6), ("G giga 吉", 10, 9),
        ("T tera 太", 10, 12), ("P peta", 10, 15), ("E exa", 10, 18), ("d deci 分", 10, -1), ("c centi 厘", 10, -2),
        ("m milli 毫", 10, -3), ("μ u micro 微", 10, -6), ("n nano 纳", 10, -9), ("p pico 皮", 10, -12),
        ("f femto", 10, -15), ("a atto", 10, -18),
    )
    for text in names.split()
}  # fmt: skip
_BINARY = {"Ki", "Mi", "Gi", "Ti", "Pi", "kibi", "mebi", "gibi", "tebi", "pebi"}

# Names that take SI prefixes; names that take none; the size; in which base units.
_ROWS: Sequence[tuple[str, str, str, str]] = (
    ("m metre meter 米 公尺", "", "1", "m"),
    ("", "in inch inches 英寸", "0.0254", "m"),
    ("", "ft foot feet 英尺", "0.3048", "m"),
    ("", "yd yard 码", "0.9144", "m"),
    ("", "mi mile 英里", "1609.344", "m"),
    ("", "nmi nauticalmile 海里", "1852", "m"),
    ("", "公里", "1000", "m"),
    ("", "公分", "0.01", "m"),
    ("", "里 市里", "500", "m"),
    ("", "尺 市尺", "1/3", "m"),
    ("", "寸 市寸", "1/30", "m"),
    ("", "angstrom", "1e-10", "m"),
    ("", "au astronomicalunit 天文单位", "149597870700", "m"),
    ("", "ly lightyear 光年", "9460730472580800", "m"),
    ("", "ha hectare 公顷", "10000", "m2"),
    ("", "acre ac 英亩", "4046.8564224", "m2"),
    ("", "亩 市亩", "2000/3", "m2"),
    ("L l litre liter 升 公升", "", "0.001", "m3"),
    ("", "gal gallon usgallon 美制加仑", "0.003785411784", "m3"),
    ("", "impgal imperialgallon ukgallon 英制加仑", "0.00454609", "m3"),
    ("", "qt quart", "0.000946352946", "m3"),
    ("", "pt pint", "0.000473176473", "m3"),
    ("", "cup", "0.0002365882365", "m3"),
    ("", "floz fluidounce", "0.0000295735295625", "m3"),
    ("", "tbsp tablespoon 汤匙", "0.00001478676478125", "m3"),
    ("", "tsp teaspoon 茶匙", "0.00000492892159375", "m3"),
    ("", "bbl barrel 桶", "0.158987294928", "m3"),
    ("g gram gramme 克 公克", "", "0.001", "kg"),
    ("t tonne metricton 吨 公吨", "", "1000", "kg"),
    ("", "公斤", "1", "kg"),
    ("", "斤 市斤", "0.5", "kg"),
    ("", "两", "0.05", "kg"),
    ("", "钱", "0.005", "kg"),
    ("", "lb lbs pound 磅", "0.45359237", "kg"),
    ("", "oz ounce 盎司", "0.028349523125", "kg"),
    ("", "st stone 英石", "6.35029318", "kg"),
    ("", "shortton 短吨", "907.18474", "kg"),
    ("", "longton 长吨", "1016.0469088", "kg"),
    ("", "ct carat 克拉", "0.0002", "kg"),
    ("s sec second 秒", "", "1", "s"),
    ("", "min minute 分钟", "60", "s"),
    ("", "h hr hour 小时 时", "3600", "s"),
    ("", "d day 天 日", "86400", "s"),
    ("", "wk week 周 星期", "604800", "s"),
    ("", "julianyear", "31557600", "s"),
    ("", "gregorianyear", "31556952", "s"),
    ("Hz hertz 赫兹", "", "1", "s-1"),
    ("", "rpm", "1/60", "s-1"),
    ("", "kn knot 节", "1852/3600", "m1s-1"),
    ("", "mph", "0.44704", "m1s-1"),
    ("", "kph kmh", "1/3.6", "m1s-1"),
    ("", "c speedoflight 光速", "299792458", "m1s-1"),
    ("", "gn standardgravity", "9.80665", "m1s-2"),
    ("K kelvin 开尔文 开", "", "1", "K"),
    ("", "degR rankine", "5/9", "K"),
    ("A amp ampere 安培", "", "1", "A"),
    ("N newton 牛顿 牛", "", "1", "m1kg1s-2"),
    ("", "lbf poundforce", "4.4482216152605", "m1kg1s-2"),
    ("", "kgf kilogramforce", "9.80665", "m1kg1s-2"),
    ("Pa pascal 帕斯卡 帕", "", "1", "m-1kg1s-2"),
    ("bar 巴", "", "100000", "m-1kg1s-2"),
    ("", "atm atmosphere 大气压", "101325", "m-1kg1s-2"),
    ("", "psi", "4.4482216152605/0.00064516", "m-1kg1s-2"),
    ("", "torr", "101325/760", "m-1kg1s-2"),
    ("", "mmHg 毫米汞柱", "133.322387415", "m-1kg1s-2"),
    ("J joule 焦耳 焦", "", "1", "m2kg1s-2"),
    ("Wh watthour 瓦时", "", "3600", "m2kg1s-2"),
    ("cal calorie 卡路里 卡", "", "4.184", "m2kg1s-2"),
    ("", "大卡 千卡", "4184", "m2kg1s-2"),
    ("", "度 度电", "3600000", "m2kg1s-2"),
    ("eV electronvolt 电子伏", "", "1.602176634e-19", "m2kg1s-2"),
    ("", "btu Btu BTU", "1055.05585262", "m2kg1s-2"),
    ("W watt 瓦特 瓦", "", "1", "m2kg1s-3"),
    ("", "hp horsepower 英制马力", "745.69987158227022", "m2kg1s-3"),
    ("", "ps PS metrichorsepower 公制马力", "735.49875", "m2kg1s-3"),
    ("", "deg degree 角度", "1", "deg"),
    ("", "arcmin 角分", "1/60", "deg"),
    ("", "arcsec 角秒", "1/3600", "deg"),
    ("", "turn 圈", "360", "deg"),
    ("", "gon grad", "0.9", "deg"),
    ("bit b 比特", "", "1", "bit"),
    ("B byte 字节", "", "8", "bit"),
    ("", "% percent 百分之一", "0.01", ""),
    ("", "one", "1", ""),
)
_BASES = ("m", "kg", "s", "K", "A", "deg", "bit")
_BASE = re.compile(r"(kg|deg|bit|m|s|K|A)(-?\d)?")


def _fraction(text: str) -> Fraction:
    over, _, under = text.partition("/")
    return Fraction(over) / Fraction(under or 1)


def _read_table() -> Iterator[tuple[str, bool, Unit]]:
    """Give each name of the table, whether it takes prefixes, and its unit."""
    for prefixed, names, size, bases in _ROWS:
        powers = dict.fromkeys(_BASES, 0) | {
            name: int(power or 1) for name, power in _BASE.findall(bases)
        }
        entry = Unit(_fraction(size), tuple(powers.values()))
        yield from ((name, True, entry) for name in prefixed.split())
        yield from ((name, False, entry) for name in names.split())


_UNITS: dict[str, Unit] = {name: found for name, _, found in _read_table()}
_TAKE_PREFIXES = {name for name, takes, _ in _read_table() if takes}
_INFORMATION = {"bit", "b", "比特", "B", "byte", "字节"}
_UNITS.update(
    dict.fromkeys(
        ("degC", "C", "celsius", "摄氏度", "摄氏"),
        Unit(Fraction(1), _UNITS["K"].powers, Fraction("273.15")),
    )
)
_UNITS.update(
    dict.fromkeys(
        ("degF", "F", "fahrenheit", "华氏度", "华氏"),
        Unit(Fraction(5, 9), _UNITS["K"].powers, Fraction("459.67") * Fraction(5, 9)),
    )
)
_TWO_MEANINGS: Mapping[str, str] = {
    "ton": "tonne (1000 kg), shortton (US, 907.18 kg) or longton (UK, 1016.05 kg)",
    "tons": "tonne (1000 kg), shortton (US, 907.18 kg) or longton (UK, 1016.05 kg)",
    "month": "days: a month has 28 to 31 of them",
    "months": "days: a month has 28 to 31 of them",
    "月": "days: a month has 28 to 31 of them",
    "year": "days (365 or 366), julianyear (365.25 days) or gregorianyear (365.2425 days)",
    "years": "days (365 or 366), julianyear (365.25 days) or gregorianyear (365.2425 days)",
    "年": "days (365 or 366), julianyear (365.25 days) or gregorianyear (365.2425 days)",
    "马力": "hp (745.7 W) or 公制马力 (735.5 W)",
    "加仑": "gal (US, 3.785 L) or impgal (UK, 4.546 L)",
    "mb": "MB (megabyte), Mb (megabit) or MiB (1,048,576 bytes)",
    "gb": "GB (gigabyte), Gb (gigabit) or GiB (2^30 bytes)",
    "kb": "kB (kilobyte), kbit (kilobit) or KiB (1024 bytes)",
    "tb": "TB (terabyte), Tb (terabit) or TiB (2^40 bytes)",
}
