"""Run the official suite against handrail and print what passed: `make conformance`.

    python -m tests.handrail_mcp.conformance [PART ...]

Each part is run for both revisions. A scored scenario that failed is run once more alone: the suite starts many at
once, and a busy machine is no fault of ours. Exits with 1 when one fails again, with 2 when the suite cannot be had.
"""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.handrail_mcp.conformance.suite import (
    HOME,
    REVISIONS,
    NotInstalled,
    find_suite,
)

_SCENARIO = re.compile(r"^ *([✓✗]) ([\w./-]+)")
_CHECKS = re.compile(r"^Total: (\d+) passed", re.MULTILINE)


def run_suite(
    command: Sequence[str], revision: str, arguments: Sequence[str], only: str = ""
) -> str:
    """Run the suite, or one of its scenarios; return what it printed."""
    out = HOME / "results" / f"{arguments[0]}-{revision}"
    if only:
        choice = ["--scenario", only, "--spec-version", revision, "--force"]
    else:
        choice = ["--requirements", revision]
    full = [*command, *arguments, *choice, "-o", str(out)]
    done = subprocess.run(
        full,
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    printed = done.stdout + done.stderr
    name = "-".join(filter(None, (arguments[0], revision, only.replace("/", "-"))))
    (HOME / f"{name}.log").write_text(printed, encoding="utf-8")
    return printed


def scored(output: str) -> dict[str, bool]:
    """Return which scenarios that count passed."""
    summary = output.partition("SUMMARY ===")[2]
    counted, _, unscored = summary.partition("Not scored for")
    passed = {
        match[2]: match[1] == "✓"
        for line in counted.splitlines()
        if (match := _SCENARIO.match(line))
    }
    for line in unscored.splitlines():
        if match := _SCENARIO.match(line):
            passed.pop(match[2], None)
    return passed


def check_part(
    part: str, command: Sequence[str], revision: str, arguments: Sequence[str]
) -> bool:
    """Run one part for one revision, print its figures, and return whether all that counts passed."""
    output = run_suite(command, revision, arguments)
    passed = scored(output)
    if not passed:
        print(f"{part} {revision}: the suite did not run; see {HOME}")
        return False
    failed = [name for name, is_passed in passed.items() if not is_passed]
    again = [
        name for name in failed if not _passes_alone(command, revision, arguments, name)
    ]
    checks = _CHECKS.search(output)
    figures = f"{len(passed) - len(again)}/{len(passed)} scenarios"
    if checks:
        figures += f", {checks[1]} checks"
    if len(failed) > len(again):
        figures += f" ({len(failed) - len(again)} of them when run alone)"
    print(f"{part} {revision}: {figures}", flush=True)
    for name in again:
        print(f"  failed: {name}; see {HOME / 'results'}")
    return not again


def _passes_alone(
    command: Sequence[str], revision: str, arguments: Sequence[str], name: str
) -> bool:
    output = run_suite(command, revision, arguments, only=name)
    match = re.search(r"(\d+) failed", output)
    return match is not None and match[1] == "0"


# ---------------------------------------------------------------------- parts


@contextmanager
def serve(module: str, *arguments: str) -> Iterator[str]:
    """Run a module that serves HTTP on the port that it is given first; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (HOME / f"{module}.log").open("w")
    program = subprocess.Popen(
        [sys.executable, "-m", module, str(port), *arguments], stdout=log, stderr=log
    )
    try:
        _wait_for(port, program)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        program.terminate()
        program.wait(20)
        log.close()


def _wait_for(port: int, program: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit and program.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the server did not start; see {HOME}")


def check_server(command: Sequence[str]) -> bool:
    """Check a server whose tools are handrail's."""
    with serve("tests.handrail_mcp.conformance.server") as address:
        arguments = ["server", "--url", address]
        # both, so that one failure does not hide another
        passed = [check_part("server", command, each, arguments) for each in REVISIONS]
        return all(passed)


def check_gateway(command: Sequence[str]) -> bool:
    """Check a gateway in front of that server."""
    with (
        serve("tests.handrail_mcp.conformance.server") as behind,
        serve("tests.handrail_mcp.conformance.gateway", behind) as address,
    ):
        arguments = ["server", "--url", address]
        passed = [check_part("gateway", command, each, arguments) for each in REVISIONS]
        return all(passed)


def check_client(command: Sequence[str]) -> bool:
    """Check a client, which the suite starts once for each scenario."""
    program = f"{sys.executable} -W ignore {Path(__file__).with_name('client.py')}"
    arguments = ["client", "--command", program, "--timeout", "240000"]
    passed = [check_part("client", command, each, arguments) for each in REVISIONS]
    return all(passed)


PARTS: dict[str, Callable[[Sequence[str]], bool]] = {
    "server": check_server,
    "client": check_client,
    "gateway": check_gateway,
}


def main(names: Sequence[str]) -> int:
    """Run the parts of these names, or all; return the exit code."""
    if unknown := [name for name in names if name not in PARTS]:
        print(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
        return 2
    try:
        command = find_suite()
    except NotInstalled as error:
        print(f"the conformance suite cannot be installed here: {error}")
        return 2
    passed = [PARTS[name](command) for name in names or PARTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
