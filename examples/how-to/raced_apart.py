"""Two processes change one account, each through a runtime of its own on one store. No change is lost."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr


async def add_five(place: Path) -> None:
    """Add one to the account, five times."""
    account = place / "account"

    @hr.tool(effect="write", key="{by}:{step}", resource="account", timeout_s=20)
    def add_one(by: str, step: int) -> int:
        """Add one to the account: read, think, write."""
        balance = int(account.read_text())
        time.sleep(0.05)
        account.write_text(str(balance + 1))
        return balance + 1

    async with hr.Runtime([add_one], store=f"sqlite:///{place}/handrail.db") as runtime:
        for step in range(5):
            await runtime.call("add_one", {"by": sys.argv[2], "step": step})


if sys.argv[1:]:
    asyncio.run(add_five(Path(sys.argv[1])))
else:
    with TemporaryDirectory() as directory:
        account = Path(directory, "account")
        account.write_text("0")
        both = [subprocess.Popen([sys.executable, __file__, directory, name]) for name in ("ann", "bob")]
        print("the processes ended with", [process.wait() for process in both])
        print("the account holds", account.read_text())
