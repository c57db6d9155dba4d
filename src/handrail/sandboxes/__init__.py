"""Where a program runs apart.

| sandbox | level | keeps out |
|---|---|---|
| `bubblewrap` | `isolated` | files, network, other processes, the environment; bounds time, output, disk, processes |
| `process` | `process` | the environment; bounds time, output, memory: against accidents, not against malice |

Another one is a `ports.Sandbox` under an entry point of the group `handrail.sandboxes`. Which one a tool gets is said
by `isolation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from handrail.ports import Sandbox
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.process import Process

KNOWN: Mapping[str, Sandbox] = {"bubblewrap": Bubblewrap(), "process": Process()}
"""Ours, by name."""
