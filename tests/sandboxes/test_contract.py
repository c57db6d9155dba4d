"""Every sandbox of ours fulfils the contract that plug-ins are given."""

from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.container import ContainerSandbox
from handrail.sandboxes.monty import MontySandbox
from handrail.sandboxes.process import ProcessSandbox
from handrail.sandboxes.wasm import WasmSandbox
from handrail.testing.sandboxes import SandboxContract


class TestProcess(SandboxContract):
    def make_sandbox(self):
        return ProcessSandbox()


class TestBubblewrap(SandboxContract):
    def make_sandbox(self):
        return Bubblewrap()


class TestContainer(SandboxContract):
    def make_sandbox(self):
        return ContainerSandbox()


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
