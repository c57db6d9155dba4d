"""Secrets and where they are kept; see `secret.Secret`."""
