"""Secrets and the places that they are read from; see `secret.Secret`."""
