"""Sandboxes: where a program runs separate from this process.

| sandbox | level | keeps out |
|---|---|---|
| `bubblewrap` | `isolated` | files, network, other processes, the environment; bounds time, output, disk, processes |
| `process` | `process` | the environment; bounds time, output, memory: against accidents, not against malice |

Another one is a `ports.Sandbox` under an entry point of the group `handrail.sandboxes`. `levels` says which one a tool
gets. Tools of level `process` run in warm workers instead (`workers.processes`).
"""
