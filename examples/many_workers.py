"""A process submits runs, a worker carries them out and is killed, and a person answers from a third place."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.testing import ScriptedServer, call

SHOP = '''
import handrail as hr

@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100")
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"
'''
HANDRAIL = [sys.executable, "-m", "handrail"]


def start_worker(folder: Path, model: str) -> subprocess.Popen[bytes]:
    """Start a worker as a person would: `handrail worker --tools shop.py --model ...`."""
    words = ["worker", "--store", "sqlite:///runs.db", "--tools", "shop.py", "--model", model]
    return subprocess.Popen([*HANDRAIL, *words], cwd=folder, stderr=subprocess.DEVNULL)


script = [call("refund", order_id="A-2", amount=180), "180 were paid back."]
with TemporaryDirectory() as place, ScriptedServer(script) as server:
    folder = Path(place)
    (folder / "shop.py").write_text(SHOP)
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with hr.SyncRuntime(store=f"sqlite:///{folder / 'runs.db'}") as runtime:
        run_id = runtime.submit("Refund A-2.", run_id="refund-A-2", idempotent=True)
        runtime.submit("Refund A-2.", run_id="refund-A-2", idempotent=True)  # a second click
        worker = start_worker(folder, server.model)
        run = runtime.result(run_id, within_s=50)
        print(run.status, "|", run.reason)

        worker.send_signal(signal.SIGKILL)
        worker.wait()
        (question,) = runtime.approvals.list()
        runtime.approvals.approve(question.id, by="anna")
        (record,) = runtime.store.list_runs().result()
        print(record.status, "| approved, and no worker lives")

        worker = start_worker(folder, server.model)
        print(runtime.result(run_id, within_s=50).text)
        worker.terminate()
        print("worker ended with", worker.wait(), "|", len(runtime.approvals.list()), "questions left")
