"""The probes of `tests.workers.sandboxed_tools`, as programs at the levels that run programs.

There they run as a tool, at `process` and `isolated`; here at `container`, `wasm` and `monty`. A probe that gets out
prints what it got; one that is held raises, or is ended.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from handrail.ports import SandboxJob
from handrail.sandboxes.container import ContainerSandbox
from handrail_toolbox.sandboxes.monty import MontySandbox
from handrail_toolbox.sandboxes.wasm import WasmSandbox
from tests.workers.sandboxed_tools import BY_NUMBER, PROBES
from tests.workers.test_sandboxed import key, world  # noqa: F401

LEVELS = [ContainerSandbox(), WasmSandbox(), MontySandbox()]

MORE = {
    "print a gigabyte": "import time\nwhile True: print('x' * 10_000)",
    "start a program": "import subprocess\ngot = subprocess.run(['id'], capture_output=True).stdout",
    "go on as a daemon": """
if os.fork():
    os._exit(0)
os.setsid()
open(outside, 'w').write('x'); got = 'gone on'
""",
    "kill the parent": "os.kill(os.getppid(), 9)\ngot = 'killed' if os.getppid() > 1 else 1 / 0",
    "make a device": "os.mknod('/tmp/disk', 0o60600, os.makedev(254, 0))\ngot = open('/tmp/disk', 'rb').read(9)",
    "mount a file system": BY_NUMBER
    + "got = call(165, 40, b'none', b'/tmp', b'tmpfs', 0, None)",
    "go back to the root of the host": """
os.mkdir('/tmp/jail'); os.chroot('/tmp/jail')
for _ in range(20): os.chdir('..')
got = os.listdir('.')
""",
}
"""`start a program` and `go on as a daemon` are no escape where processes are allowed and end with the program."""
ALLOWED = {("container", "start a program")}


@pytest.mark.parametrize("sandbox", LEVELS, ids=lambda each: each.level)
@pytest.mark.parametrize("probe", [*PROBES, *MORE])
def test_a_program_cannot(sandbox, probe, world):
    if sandbox.lacks:
        pytest.skip(f"{sandbox.level}: {sandbox.lacks}")
    code = {**PROBES, **MORE}[probe]
    given = "\n".join(f"{name} = {value!r}" for name, value in world.items())
    program = f"import os\n{given}\n{code}\nprint('GOT', got)"
    job = SandboxJob(
        [sandbox.python, "-I", "main.py"],
        files={"main.py": program.encode()},
        timeout_s=5.0 if probe != "print a gigabyte" else 0.5,
        output_bytes=4096,
        returned_files=0,
    )
    ended = sandbox.run(job, Event())
    assert len(ended.stdout) <= 4096
    assert not Path(world["outside"]).exists()
    if (sandbox.level, probe) in ALLOWED:
        assert b"uid=0" in ended.stdout, "root of its own namespace"
        return
    assert b"GOT" not in ended.stdout, "it got out"
    assert (ended.end, ended.exit_code) != ("exited", 0) or probe == "go on as a daemon"
