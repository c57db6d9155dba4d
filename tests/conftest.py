"""What many tests start from."""

import signal

import pytest
from hypothesis import settings

from tests.support.drivers import KINDS, Driver

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=KINDS)
def drive(request):
    """Open a driver over some tools: each test that asks for it runs on asyncio and in the calling thread."""
    opened = []

    def open_one(tools, **how) -> Driver:
        opened.append(Driver(request.param, tools, how))
        return opened[-1]

    yield open_one
    for driver in opened:
        driver.close()
