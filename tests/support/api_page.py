"""The table of operations in the reference of the HTTP API, as the code has them."""

from docs import build
from handrail_server.app import OPERATIONS
from handrail_server.operations import PREFIX

PAGE = build.DOCS / "reference/http-api.md"


def wanted() -> str:
    rows = [
        f"| `{each.method} {PREFIX}{each.path}` | {each.role or ''} | {each.summary} |"
        for each in OPERATIONS
    ]
    return "| operation | role | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def shown() -> str:
    (region,) = build.OPERATION_REGION.findall(PAGE.read_text(encoding="utf-8"))
    return region


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        build.OPERATION_REGION.sub(lambda _: wanted(), text), encoding="utf-8"
    )
