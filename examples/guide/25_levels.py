"""One program of a model at two levels, and a tool that is held to the files it declares."""

import asyncio
import tempfile
from pathlib import Path

import handrail as hr
from handrail_toolbox.run_python import RunPython

FOLDER = Path(tempfile.gettempdir(), "handrail-levels")


@hr.tool(effect="read", isolation="process", sandbox=hr.Sandbox(mounts=[FOLDER]), timeout_s=10)
def first_line(path: str) -> str:
    """Read the first line of a file."""
    try:
        return Path(path).read_text().splitlines()[0]
    except PermissionError as error:
        raise hr.ToolError(
            "NOT_MINE", "That file is not among those of this tool.", suggestion="Ask the user."
        ) from error


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "orders.csv").write_text("a,1\nb,2\n")
    orders = {"orders.csv": FOLDER / "orders.csv"}
    for level in ("monty", "isolated"):
        async with hr.Runtime([RunPython(level=level, files=orders)]) as runtime:
            code = "print(sum(int(line.split(',')[1]) for line in open('orders.csv').read().split()))"
            result = await runtime.call("run_python", {"code": code})
            print(level, result.value["stdout"].strip() if result.ok else result.failure.code)
    async with hr.Runtime([first_line]) as runtime:
        for path in (FOLDER / "orders.csv", Path.home()):
            result = await runtime.call("first_line", {"path": str(path)})
            print(result.value if result.ok else result.failure.code)


if __name__ == "__main__":
    asyncio.run(main())
