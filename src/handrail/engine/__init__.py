"""Performs what `core` decides: stores, approvals, model requests, attempts, and the state of each active run."""
