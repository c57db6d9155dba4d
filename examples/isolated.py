"""A tool that reads what strangers uploaded, in a sandbox: whatever the file does to it, it reaches nothing of ours.

handrail call summarise_upload '{"name": "orders.csv"}' --tools examples/isolated.py
"""

import csv
import os
from pathlib import Path

import handrail as hr

UPLOADS = Path(__file__).resolve().parent / "uploads"


@hr.tool(effect="read", isolation="isolated", sandbox=hr.Sandbox(mounts=[UPLOADS]), timeout_s=10)
def summarise_upload(name: str) -> dict[str, object]:
    """Say what an uploaded table holds.

    Args:
        name: The name of the file, such as "orders.csv".
    """
    with (UPLOADS / name).open(newline="") as file:
        columns, *rows = csv.reader(file)
    return {"columns": columns, "rows": len(rows), "home": os.environ["HOME"], "folder": [*map(str, Path().iterdir())]}


if __name__ == "__main__":
    with hr.SyncRuntime([summarise_upload]) as runtime:
        print(runtime.call("summarise_upload", {"name": "orders.csv"}).text)
