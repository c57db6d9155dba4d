"""Ready-made tools, each opt-in: one file, one subject, with effect, key, resource and time limit declared.

    from handrail_toolbox.calculator import calculate

    runtime = hr.Runtime([calculate])

Nothing here is loaded unless it is imported; what a tool may reach (folders, databases, hosts, namespaces) is named
where it is made, never by the model.
"""

from collections.abc import Mapping

PARTS: Mapping[str, Mapping[str, str]] = {
    "names": {"openapi": "handrail_toolbox.openapi:openapi"},
    "notifiers": {
        "mail": "handrail_toolbox.notifying:mail_from",
        "webhook": "handrail_toolbox.notifying:Webhook",
    },
    "sandboxes": {
        "wasm": "handrail_toolbox.sandboxes.wasm:SANDBOX",
        "monty": "handrail_toolbox.sandboxes.monty:SANDBOX",
    },
    "places": {"openapi": "handrail_toolbox.openapi:service_at"},
}
"""What this package adds to `handrail`; see `handrail.plugins`."""
