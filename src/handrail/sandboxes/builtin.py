"""The sandboxes of handrail itself, for `plugins`. Not in the package's own file: most programs need none of them."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.ports import Sandbox
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.container import ContainerSandbox
from handrail.sandboxes.process import ProcessSandbox

KNOWN: Mapping[str, Sandbox] = {
    "container": ContainerSandbox(),
    "bubblewrap": Bubblewrap(),
    "process": ProcessSandbox(),
}
"""By name."""
