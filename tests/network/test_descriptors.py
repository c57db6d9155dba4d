"""Waiting for descriptors that `select.select` refuses."""

import os
import socket
from contextlib import ExitStack

from handrail.network.descriptors import wait_readable
from tests.support.busy import (
    FIRST_HIGH,
    no_descriptors_left,
    no_low_descriptors,
)


def test_a_descriptor_of_any_number_is_waited_for():
    with no_low_descriptors(), ExitStack() as close:
        reader, writer = os.pipe()
        close.callback(os.close, reader)
        assert reader > FIRST_HIGH
        assert not wait_readable(reader, timeout_s=0)
        os.write(writer, b".")
        assert wait_readable(reader, timeout_s=0)
        assert os.read(reader, 1) == b"."
        os.close(writer)
        assert wait_readable(reader), "what has ended can be read"


def test_it_takes_no_descriptor_of_its_own():
    reader, writer = os.pipe()
    with (
        os.fdopen(reader, "rb") as quiet,
        os.fdopen(writer, "wb"),
        no_descriptors_left(),
    ):
        assert not wait_readable(quiet, timeout_s=0)


def test_any_of_several_is_enough():
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs, os.fdopen(reader, "rb") as quiet, os.fdopen(writer, "wb"):
        assert not wait_readable(quiet, ours, timeout_s=0)
        theirs.send(b".")
        assert wait_readable(quiet, ours)
