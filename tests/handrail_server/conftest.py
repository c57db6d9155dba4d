"""Stores that survive, for servers whose processes die."""

from tests.journeys.conftest import postgres, store  # noqa: F401
