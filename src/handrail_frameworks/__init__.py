"""handrail under other agent frameworks: one module for each, imported when it is asked for.

The framework keeps its loop, its messages and its checkpoints; each call of a tool goes through a `Runtime`. A tool is
either *exported*, which is to say it is handrail's and shown to the framework, or *adopted*: it stays the framework's,
and handrail checks, records and limits its calls.

Rule 1: an adapter uses the public interface of a runtime, and nothing else here knows a framework.
Rule 2: identity comes from the framework: its conversation is the run, its call ids are those of the calls.
"""

from collections.abc import Mapping

PARTS: Mapping[str, Mapping[str, str]] = {
    "names": {"adopt": "handrail_frameworks.adopting:adopt"},
}
"""What this package adds to `handrail`; see `handrail.plugins`."""
