"""Two reads for a model: what a tool is. Try them without a model, without a key:

handrail tools list --tools examples/weather.py
handrail call get_weather '{"city": "北京"}' --tools examples/weather.py
"""

from typing import Annotated, Literal, TypedDict

from pydantic import Field

import handrail as hr

_CELSIUS = {"北京": 21.0, "上海": 24.5, "Paris": 17.0, "Reykjavík": 6.5}


class Weather(TypedDict):
    """What the weather service tells."""

    city: str
    temperature: float
    unit: str


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> Weather:
    """Get the current temperature of a city.

    Args:
        city: Name of the city, such as "北京" or "Paris".
        unit: Unit of the temperature.
    """
    celsius = _temperature_of(city)
    return {"city": city, "temperature": celsius if unit == "celsius" else celsius * 9 / 5 + 32, "unit": unit}


@hr.tool(effect="read", timeout_s=5)
async def get_forecast(city: str, days: Annotated[int, Field(ge=1, le=7)] = 3) -> list[float]:
    """Get the expected temperatures of the next days, in degrees Celsius.

    Args:
        city: Name of the city, such as "北京" or "Paris".
        days: How many days, from tomorrow on.
    """
    today = _temperature_of(city)
    return [today + change for change in (0.5, 1.0, -0.5, -1.5, 0.0, 2.0, 1.5)[:days]]


def _temperature_of(city: str) -> float:
    if city not in _CELSIUS:
        known = ", ".join(_CELSIUS)
        raise hr.ToolError("CITY_NOT_FOUND", f"There is no weather for {city!r}.", suggestion=f"Known: {known}.")
    return _CELSIUS[city]
