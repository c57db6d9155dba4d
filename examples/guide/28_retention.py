"""What ended long ago is deleted while the store is in use; what waits, or is in doubt, stays."""

import os
import time
from tempfile import TemporaryDirectory

import handrail as hr
from handrail import admin
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call


@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100", timeout_s=5)
def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return "paid"


def ask(store: SqliteStore, order_id: str, amount: float) -> None:
    model = ScriptedModel([call("refund", order_id=order_id, amount=amount), "Done."])
    with hr.SyncRuntime([refund], store=store) as runtime:
        print(runtime.run("Pay it back.", model=model, run_id=f"order-{order_id}").status)


with TemporaryDirectory() as place:
    os.chdir(place)
    store = SqliteStore("handrail.db")
    ask(store, "A-1", 20)
    ask(store, "A-2", 500)  # waits for a person
    time.sleep(0.01)

    a_moment = admin.Retention(runs_s=0.001, audit_s=0.001)
    print("would go:", admin.keep(store, a_moment, dry_run=True).runs, "run")
    deleted = admin.keep(store, a_moment, by="anna")
    print("went:", deleted.runs, "run,", deleted.effects, "writes")
    print("stay:", [run.run_id for run in store.list_runs().result()])
    print("known again:", [write.key for write in store.list_writes().result()])

    forgetful = admin.Retention(runs_s=30 * admin.DAY_S, tools_s={"refund": 0.001})
    print("forgotten:", admin.keep(store, forgetful).effects, "write")
