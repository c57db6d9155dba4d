"""The world of the tutorial: a bank that is a folder, in which a payment is a file."""

from pathlib import Path
from uuid import uuid4


class Bank:
    """Makes payments, and finds them again by the reference that came with them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def pay(self, amount: int, reference: str) -> str:
        """Make a payment, whether there was one like it or not, as most services do."""
        self.folder.joinpath(f"{reference}.{uuid4().hex}.payment").write_text(f"{amount} euros")
        return f"paid {amount} euros"

    def find(self, reference: str) -> list[str]:
        """Return the payments with a reference."""
        return [file.read_text() for file in self.folder.glob(f"{reference}.*.payment")]

    def payments(self) -> int:
        """Return how many payments there are: what an accountant would count."""
        return len(list(self.folder.glob("*.payment")))
