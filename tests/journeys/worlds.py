"""A world that outlives the processes that change it: a far side in files, and one tool for each replay class."""

import os

import handrail as hr

CLASSES = ("key", "verify", "none")


class Far:
    """A far side: `asked` has a line for each request that reached it, `effects` one for each thing that happened.

    A line of `effects` begins with the key of its request, or `-`. The first line of a key is what happened; each later
    one is a request that the far side answers from the first. So it knows a key from one moment on, and a process that
    is frozen or killed beside that moment holds up nobody.

    `order` has every line, in the order of all, behind the number of the process that wrote it and the file's name.
    """

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def add(self, name, line):
        self._append(name, line)
        self._append("order", f"{os.getpid()} {name} {line}")

    def _append(self, name, line):
        # one write below a page, at the end: whole, whoever writes too
        with (self.folder / name).open("a") as file:
            file.write(f"{line}\n")

    def lines(self, name):
        file = self.folder / name
        lines = file.read_text().splitlines() if file.exists() else []
        return first_of_each_key(lines) if name == "effects" else lines

    def happened(self, title):
        """How often a ticket was opened."""
        return [line.split()[-1] for line in self.lines("effects")].count(title)

    def was_asked(self, title):
        """How often somebody asked for a ticket."""
        return [line.split()[-1] for line in self.lines("asked")].count(title)


def first_of_each_key(lines):
    """Return the lines without those whose key has come before."""
    known = set()
    first = []
    for line in lines:
        key = line.split()[0]
        if key == "-" or key not in known:
            known.add(key)
            first.append(line)
    return first


def tool(far, replay, **declared):
    """Return the tool of a class. Its name tells the class."""
    fn, settings = declaration(far, replay)
    return hr.FunctionTool(fn, **settings, **declared)


def declaration(far, replay):
    """Return the function of a class, and how it is declared."""

    def key(title: str, context: hr.Context[None]) -> str:
        """Open a ticket, once for each key: the far side knows them."""
        far.add("asked", title)
        far.add("effects", f"{context.idempotency_key} {title}")
        return f"opened {title}"

    def plain(title: str) -> str:
        """Open a ticket."""
        far.add("asked", title)
        far.add("effects", f"- {title}")
        return f"opened {title}"

    def found(arguments, context):
        return (
            hr.Found(f"opened {arguments['title']}")
            if far.happened(arguments["title"])
            else hr.NotFound()
        )

    how = {
        "key": (key, {"replay": "key"}),
        "verify": (plain, {"verify": found}),
        "none": (plain, {}),
    }
    fn, of_class = how[replay]
    return fn, {"name": f"open_{replay}", "effect": "write", **of_class}
