"""Builds the Python of level `wasm`: CPython as a WebAssembly component, compiled for this machine.

    python -m handrail_toolbox.sandboxes.wasm_build      # once, about a minute; needs the extra `wasm`

The component is CPython as componentize-py brings it, with `python_guest/program.py`. wasmtime compiles it to machine
code, which lies in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`, `%LOCALAPPDATA%` on Windows), under a name
that contains the versions it depends on, so that nothing old is ever loaded.

Rule 1: the compiled file is machine code, and is loaded only if nobody else can have written it.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from handrail.errors import describe_install

_GUEST = Path(__file__).with_name("python_guest")
COMMAND = "python -m handrail_toolbox.sandboxes.wasm_build"


def cache_folder() -> Path:
    """Return the folder of the built file."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "handrail" / "wasm"


def find_lack() -> str:
    """Return why level `wasm` cannot be given, as a clause; empty when it can."""
    try:
        place = compiled_file()
    except metadata.PackageNotFoundError as error:
        return f"{error.name} is not installed: {describe_install('wasm')}"
    if not place.exists():
        return f"its Python has not been built: run `{COMMAND}` once"
    return _find_stranger(place)


def compiled_file() -> Path:
    """Return where the machine code lies, or would.

    Raises:
        PackageNotFoundError: wasmtime or componentize-py is not installed.
    """
    version = metadata.version("wasmtime")
    return cache_folder() / f"{_component_name()}-wasmtime-{version}.cwasm"


def _component_name() -> str:
    sources = [_GUEST / "guest.wit", _GUEST / "program.py"]
    digest = sha256(_APP.encode())
    for each in sources:
        digest.update(each.read_bytes())
    return f"python-{metadata.version('componentize-py')}-{digest.hexdigest()[:12]}"


def _find_stranger(place: Path) -> str:
    """Return who else may have written a file or its folder; empty when nobody can."""
    if sys.platform == "win32":  # the folder is the user's own
        return ""
    for each in (place, place.parent):
        found = each.stat()
        if found.st_uid not in (os.geteuid(), 0):
            return f"{each} belongs to another user"
        if stat.S_IMODE(found.st_mode) & 0o022:
            return f"others may write {each}"
    return ""


def make_engine() -> Any:
    """Return an engine whose settings those that compile and those that run have in common."""
    import wasmtime

    config = wasmtime.Config()
    config.wasm_component_model = True
    return wasmtime.Engine(config)


def build() -> Path:
    """Build what is missing, and return the compiled file.

    Raises:
        PackageNotFoundError: wasmtime or componentize-py is not installed.
        CalledProcessError: componentize-py failed; it says why on stderr.
    """
    place = compiled_file()
    if place.exists():
        return place
    from wasmtime import component

    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made = Path(folder) / "python.wasm"
        _componentize(Path(folder), made)
        compiled = Path(folder) / "python.cwasm"
        built = component.Component.from_file(make_engine(), str(made))
        compiled.write_bytes(built.serialize())
        compiled.chmod(0o600)
        compiled.replace(place)  # whoever builds at the same time builds the same
    return place


_APP = """
import program
import wit_world


class WitWorld(wit_world.WitWorld):
    def run(self, name, source, folder):
        return program.run(name, source, folder)
"""


def _componentize(folder: Path, made: Path) -> None:
    (folder / "app.py").write_text(_APP, encoding="utf-8")
    installed = folder / "nothing-installed" / "lib" / "python3" / "site-packages"
    installed.mkdir(parents=True)  # else the packages of this environment would go in
    run = "import sys; from componentize_py import script; sys.exit(script())"
    command = [
        sys.executable, "-c", run, "--wit-path", str(_GUEST), "--world", "guest", "--quiet", "componentize",
        "--python-path", str(folder), "--python-path", str(_GUEST), "--output", str(made), "app",
    ]  # fmt: skip
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / "nothing-installed")}
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    print(build())
