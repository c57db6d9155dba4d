"""Every sandbox of ours fulfils the contract that plug-ins are given."""

from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.container import ContainerSandbox
from handrail.sandboxes.process import ProcessSandbox
from handrail.testing.contracts.sandboxes import SandboxContract


class TestProcess(SandboxContract):
    def make_sandbox(self):
        return ProcessSandbox()


class TestBubblewrap(SandboxContract):
    def make_sandbox(self):
        return Bubblewrap()


class TestContainer(SandboxContract):
    def make_sandbox(self):
        return ContainerSandbox()
