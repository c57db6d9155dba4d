"""Clients of other HTTP libraries behind the network guard."""
