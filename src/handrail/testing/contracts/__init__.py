"""What handrail asks of a part that you bring, as test classes: pytest and hypothesis are needed here only.

    from handrail.testing.contracts.stores import StoreContract

    class TestMyStore(StoreContract):
        def open(self):
            return MyStore()

| what you bring | modules |
|---|---|
| a store of writes | `stores`; `approvals`, where a claim uses its approval in the same commit |
| one that keeps runs and questions | `runs`; `scopes` for tenants who share it |
| one that outlives its process | `processes`: other processes, which are killed and stopped |
| a wire dialect | `dialects` |
| a sandbox | `sandboxes` |

handrail's own tests inherit the same classes.
"""
