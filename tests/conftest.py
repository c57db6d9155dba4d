"""What many tests start from."""

import pytest

from tests.drivers import KINDS, Driver


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
