"""Ready-made tools, each opt-in: one file, one subject, with effect, key, resource and time limit declared.

    from handrail_toolbox.calculator import calculate

    runtime = hr.Runtime([calculate])

Nothing here is loaded unless it is imported; what a tool may reach (folders, databases, hosts, namespaces) is named
where it is made, never by the model.
"""
