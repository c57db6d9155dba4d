"""The sandboxes for a model's Python, and one over HTTP, fulfil the contract that plug-ins are given."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.testing.contracts.sandboxes import SandboxContract
from handrail_toolbox.sandboxes.monty import MontySandbox
from handrail_toolbox.sandboxes.wasm import WasmSandbox

EXAMPLE = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parents[3] / "examples/remote_sandbox.py"))
)


class TestWasm(SandboxContract):
    returns_files = False
    has_processes = False

    def make_sandbox(self):
        return WasmSandbox()


class TestMonty(SandboxContract):
    returns_files = False
    has_processes = False

    def make_sandbox(self):
        return MontySandbox()

    def test_a_program_that_sleeps_is_ended_too(self, sandbox):
        ended = self.run(sandbox, "import time\ntime.sleep(600)\nprint('slept')")
        assert (ended.exit_code, ended.stdout) == (0, b"slept\n")


@pytest.fixture(scope="module")
def service_port():
    server = EXAMPLE.start_service("a token")
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(bool(Bubblewrap().lacks), reason="the service runs programs in it")
class TestRemote(SandboxContract):
    """The sandbox of `examples/remote_sandbox.py`, over HTTP."""

    @pytest.fixture(autouse=True)
    def reach(self, service_port):
        self.port = service_port

    def make_sandbox(self, token="a token"):
        return EXAMPLE.RemoteSandbox("127.0.0.1", self.port, token)

    def test_a_wrong_token_runs_nothing(self):
        with pytest.raises(OSError, match="403"):
            self.run(self.make_sandbox("another"), "print(1)")
