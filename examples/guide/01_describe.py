"""A function becomes a tool: hints are the schema, the docstring is what the model reads."""

import asyncio
from typing import Annotated, Literal

from pydantic import Field

import handrail as hr


@hr.tool(effect="read", timeout_s=5, tags=["weather"])
async def get_forecast(
    city: str, days: Annotated[int, Field(ge=1, le=7)] = 1, unit: Literal["celsius", "fahrenheit"] = "celsius"
) -> list[float]:
    """Forecast the temperature of a city.

    Args:
        city: Its name, such as "Paris".
        days: How many days from today.
    """
    if city != "Paris":
        raise hr.ToolError("CITY_NOT_FOUND", f"There is no city {city!r}.", suggestion="Ask the user for the city.")
    return [17.5, 18.0, 16.5][:days]


async def main() -> None:
    async with hr.Runtime([get_forecast]) as runtime:
        for arguments in ({"city": "Paris", "days": 2}, {"city": "Paris", "days": 9}, {"city": "Atlantis"}):
            result = await runtime.call("get_forecast", arguments)
            print(result.value if result.ok else f"{result.failure.code}: {result.failure.message}")


asyncio.run(main())
