"""What runs inside WebAssembly: one Python program, as `__main__`. Built into a component by `sandboxes.wasm_build`.

A component has no folder of modules: a program can import what was imported here while it was built, and nothing else.
"""

from __future__ import annotations

import importlib
import io
import linecache
import os
import random
import sys
import traceback
from types import ModuleType

MODULES = """
abc argparse array ast base64 bdb binascii bisect builtins bz2 calendar cmath cmd code codecs
collections collections.abc colorsys configparser contextlib contextvars copy copyreg csv
dataclasses datetime decimal difflib dis doctest email email.message email.parser email.policy
encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.punycode
encodings.utf_16 encodings.utf_32 encodings.utf_8_sig enum errno fileinput fnmatch fractions
functools gc getopt gettext glob graphlib gzip hashlib heapq hmac html html.entities html.parser
inspect io ipaddress itertools json json.tool keyword linecache locale logging lzma math mimetypes
numbers opcode operator os os.path pathlib pickle pickletools pkgutil platform pprint queue quopri
random re reprlib sched secrets shelve shlex shutil sqlite3 stat statistics string stringprep struct
symtable sys tarfile tempfile textwrap time timeit token tokenize tomllib traceback types typing
unicodedata unittest unittest.mock urllib urllib.parse uuid warnings wave weakref xml.dom.minidom
xml.etree.ElementTree xml.sax zipfile zipimport zlib zoneinfo asyncio concurrent.futures threading
_strptime _pydecimal encodings.utf_8 encodings.cp437 encodings.gbk encodings.gb18030 encodings.big5
encodings.shift_jis encodings.euc_jp encodings.euc_kr encodings.koi8_r encodings.cp1251
encodings.iso8859_15 encodings.mac_roman encodings.utf_16_le encodings.utf_16_be encodings.utf_7
encodings.unicode_escape encodings.raw_unicode_escape encodings.hex_codec encodings.base64_codec
encodings.rot_13 encodings.zlib_codec
"""

for _module in MODULES.split():
    try:
        importlib.import_module(_module)
    except Exception as error:
        # this build of Python has no such module: a program that imports it gets an ImportError
        sys.modules.pop(_module, None)
        del error


def run(name: str, source: str, folder: str) -> int:
    """Run a program and return its exit code."""
    sys.stdout = _open_stream(1)
    sys.stderr = _open_stream(2)
    random.seed()  # its state was stored when this was built, and would be the same in each run
    if folder:
        os.chdir(folder)
    main = ModuleType("__main__")
    main.__dict__["__file__"] = name
    sys.modules["__main__"] = main
    sys.argv = [name]
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
    try:
        exit_code = _execute(name, source, main)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    sys.stderr.flush()
    return exit_code


def _open_stream(number: int) -> io.TextIOWrapper:
    """Open a stream that sends each line as it is printed, and all of a long one: WASI takes 8 KiB at a time."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _execute(name: str, source: str, main: ModuleType) -> int:
    try:
        exec(compile(source, name, "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        traceback.print_exception(error.with_traceback(trace and trace.tb_next))
        return 1
    return 0
