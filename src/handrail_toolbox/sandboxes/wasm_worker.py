"""The warm process of level `wasm`: keeps the compiled Python, and makes a fresh instance of it for each program.

Started by `wasm`. It takes orders on stdin and answers on stdout. A message is a length of 8 bytes, and bytes: an order
is a `WasmOrder` in MessagePack; what follows is output as it comes, after a letter for its stream, how much of it was
dropped so far, and at last, after the letter `x`, a `WasmEnd`.

Rule 1: an instance is used once. It reaches its own memory, its streams, the clocks, randomness, and one folder to
    read; everything else is not there.
Rule 2: if an instance broke out of WebAssembly, it would still be in a process without rights: no file but that folder,
    no TCP, none of the system calls that `seccomp` refuses, no signals to others.
Rule 3: the process ends as soon as its stdin does, in the middle of a program too.
"""

from __future__ import annotations

import os
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Struct

from handrail.sandboxes import landlock
from handrail.sandboxes.confinement import drop_rights
from handrail.sandboxes.seccomp import filter_here
from handrail_toolbox.sandboxes.wasm_build import make_engine

HEADER_BYTES = 8
STDOUT = b"o"
STDERR = b"e"
DROPPED = b"d"
END = b"x"
"""The letters that answers begin with."""
_INSIDE = "/box"
_DROPS_SAID = 1 << 20


class WasmOrder(Struct, frozen=True):
    """A program to run. `has_files`: the worker's folder holds files for it."""

    name: str
    source: str
    has_files: bool
    memory_bytes: int
    output_bytes: int


class WasmEnd(Struct, frozen=True):
    """How it ended; `exit_code` is None for a trap, such as an overflow of its stack."""

    exit_code: int | None
    dropped_bytes: int


def main(compiled: str, folder: str) -> None:
    """Answer orders until stdin ends.

    Args:
        compiled: The file of machine code, see `wasm_build`.
        folder: Where the files of an order lie, for the program to read.
    """
    import wasmtime
    from wasmtime import component

    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    engine = make_engine()
    python = component.Component.deserialize_file(engine, compiled)
    linker = component.Linker(engine)
    linker.add_wasip2()
    drop_rights(filter_here())
    landlock.restrict([folder], tcp=False, abstract_sockets=False)
    runner = _Runner(wasmtime, engine, linker, python, folder, answers)
    runner.run(
        WasmOrder("warm", "", False, 1 << 28, 0)
    )  # its end says that we are ready
    orders: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_read_orders, args=(requests, orders), daemon=True).start()
    while True:
        runner.run(msgspec.msgpack.decode(orders.get(), type=WasmOrder))


def _read_orders(requests: BinaryIO, orders: SimpleQueue[bytes]) -> None:
    while (order := read_message(requests)) is not None:
        orders.put(order)
    os._exit(0)  # the host is gone, or wants no more


def write_message(stream: IO[bytes], data: bytes) -> None:
    """Write one message."""
    stream.write(len(data).to_bytes(HEADER_BYTES, "little") + data)
    stream.flush()


def read_message(stream: IO[bytes], most_bytes: int | None = None) -> bytes | None:
    """Return the next message; None when the stream has ended.

    Raises:
        OSError: It is longer than that.
    """
    header = stream.read(HEADER_BYTES)
    length = int.from_bytes(header, "little")
    if len(header) < HEADER_BYTES:
        return None
    if most_bytes is not None and length > most_bytes:
        raise OSError("the message is too long")
    data = stream.read(length)
    return data if len(data) == length else None


class _Output:
    """Sends the beginning of two streams, each up to a number of bytes."""

    def __init__(self, answers: BinaryIO, most_bytes: int) -> None:
        self._answers = answers
        self._room = {STDOUT: most_bytes, STDERR: most_bytes}
        self.dropped = 0

    def write_out(self, data: bytes) -> None:
        self._send(STDOUT, data)

    def write_err(self, data: bytes) -> None:
        self._send(STDERR, data)

    def _send(self, stream: bytes, data: bytes) -> None:
        sent = data[: self._room[stream]]
        self._room[stream] -= len(sent)
        if sent:
            write_message(self._answers, stream + sent)
        if len(sent) < len(data):
            self._drop(len(data) - len(sent))

    def _drop(self, count: int) -> None:
        """Count what is dropped; say so at once and then now and again, for the program may be killed."""
        if (
            not self.dropped
            or self.dropped // _DROPS_SAID < (self.dropped + count) // _DROPS_SAID
        ):
            total = (self.dropped + count).to_bytes(HEADER_BYTES, "little")
            write_message(self._answers, DROPPED + total)
        self.dropped += count


class _Runner:
    def __init__(
        self,
        wasmtime: Any,
        engine: Any,
        linker: Any,
        python: Any,
        folder: str,
        answers: BinaryIO,
    ) -> None:
        self._wasmtime = wasmtime
        self._engine = engine
        self._linker = linker
        self._python = python
        self._folder = folder
        self._answers = answers

    def run(self, order: WasmOrder) -> None:
        """Run a program in an instance of its own, and send what it prints and how it ended."""
        output = _Output(self._answers, order.output_bytes)
        store = self._wasmtime.Store(self._engine)
        store.set_limits(memory_size=order.memory_bytes)
        wasi = self._wasmtime.WasiConfig()
        wasi.stdout_custom = output.write_out
        wasi.stderr_custom = output.write_err
        if order.has_files:
            wasi.preopen_dir(self._folder, _INSIDE, fs_mutable=False)
        store.set_wasi(wasi)
        folder = _INSIDE if order.has_files else ""
        exit_code: int | None
        try:
            instance = self._linker.instantiate(store, self._python)
            run = instance.get_func(store, "run")
            exit_code = run(store, order.name, order.source, folder)
        except self._wasmtime.ExitTrap as trap:  # os._exit
            exit_code = trap.code
        except self._wasmtime.WasmtimeError as error:
            output.write_err(f"\n{str(error).splitlines()[-1]}\n".encode())
            exit_code = None
        end = WasmEnd(exit_code, output.dropped)
        write_message(self._answers, END + msgspec.msgpack.encode(end))
