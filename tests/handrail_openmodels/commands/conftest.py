from tests.cli.conftest import *  # noqa: F403  # its fixtures
