"""Stores that survive, for frameworks whose processes die."""

from tests.journeys.conftest import postgres, store  # noqa: F401
