"""Inside a sandbox: 127.0.0.1 as the way to the proxy, whose socket lies in a folder that the sandbox is shown.

Started as `python -I -S handrail_relay.py PROGRAM ...` by `proxy.EgressProxy.enclose`, so it imports little of the
standard library. It listens, leaves a process behind that passes bytes on, and becomes the program. A file beside it
holds the place of the socket and the address of the proxy, with its token.
"""

# ruff: noqa: PTH107, PTH123  (pathlib is an import that is not worth its time here)

from __future__ import annotations

import os
import selectors
import socket
import sys

_PIECE_BYTES = 64 * 1024
_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def main() -> None:
    """Listen, fork, and become the program."""
    script, *program = sys.argv
    place, url = _take_address(script.removesuffix(".py") + ".txt")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    if os.fork() == 0:
        # the program's own children are all that it shall see
        if os.fork() == 0:
            _release_streams()
            _relay(listening, place)
        os._exit(0)
    os.wait()
    listening.close()
    here = url.removesuffix(":0") + f":{port}"
    environment = {**os.environ, **dict.fromkeys(_VARIABLES, here)}
    os.execvpe(program[0], program, environment)


def _take_address(file: str) -> tuple[str, str]:
    """Return the place of the socket and the address of the proxy; nothing else shall find them in a file."""
    with open(file) as opened:
        place, url = opened.read().split("\n")
    os.remove(file)
    return place, url


def _release_streams() -> None:
    """Hold none of the program's streams."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _relay(listening: socket.socket, place: str) -> None:
    """Pass bytes on for ever. A selector also takes descriptors of 1,024 and above, which `select.select` refuses."""
    other: dict[socket.socket, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    for side in _begin(listening, place, other):
                        selector.register(side, selectors.EVENT_READ)
                elif key.fileobj in other:
                    for side in _pass_piece(key.fileobj, other):
                        selector.unregister(side)
                        side.close()


def _begin(
    listening: socket.socket, place: str, other: dict[socket.socket, socket.socket]
) -> tuple[socket.socket, ...]:
    """Accept a connection, connect it to the proxy, and return both sockets; none if the proxy cannot be reached."""
    client, _ = listening.accept()
    proxy = socket.socket(socket.AF_UNIX)
    try:
        proxy.connect(place)
    except OSError:
        client.close()
        proxy.close()
        return ()
    other[client] = proxy
    other[proxy] = client
    return client, proxy


def _pass_piece(
    each: socket.socket, other: dict[socket.socket, socket.socket]
) -> tuple[socket.socket, ...]:
    """Pass on what a side has sent. If it has ended, return both sockets, for the caller to close."""
    try:
        piece = each.recv(_PIECE_BYTES)
        if piece:
            other[each].sendall(piece)
            return ()
    except OSError:
        pass
    side = other.pop(each)
    other.pop(side)
    return each, side


if __name__ == "__main__":
    main()
