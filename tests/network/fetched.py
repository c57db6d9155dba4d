"""A tool for a sandbox: small, since the sandbox imports it."""

import os
import urllib.error
import urllib.request


def fetch(url: str) -> str:
    """Fetch a page by the proxy of the environment."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {'PATH' in os.environ}"
