"""Sandboxes: where a program runs separate from this process.

| sandbox | level | keeps out |
|---|---|---|
| `container` | `container` | the same as `isolated`, in a container of `runsc` or `runc` |
| `bubblewrap` | `isolated` | files, network, other processes, the environment; bounds time, output, disk, processes |
| `process` | `process` | the environment; bounds time, output, memory: against accidents, not against malice |
| `wasm` | `wasm` | the same and all system calls, for a Python program: it runs in a WebAssembly machine |
| `monty` | `monty` | the same, for a program in a subset of Python, which an interpreter of its own runs |

Another one is a `ports.Sandbox` under an entry point of the group `handrail.sandboxes`. `levels` says which one a tool
gets. Tools of level `process` run in warm workers instead (`workers.processes`).
"""
