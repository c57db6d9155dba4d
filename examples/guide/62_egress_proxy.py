"""A program that takes no transport of ours, behind a proxy that lets it reach listed hosts only."""

import os
import subprocess
import sys

import handrail as hr
from handrail.network.proxy import EgressProxy
from handrail.testing.loopback import Answer, Loopback

PROGRAM = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=5).read().decode())
    except OSError as error:
        print(error)
"""

with Loopback(lambda request: Answer(body=b"version 7")) as server:
    allow = hr.Egress(hosts=["releases.example"], private=["127.0.0.1"], ports=[server.port])
    with EgressProxy(allow, resolve=lambda host, port: ["127.0.0.1"]) as proxy:
        urls = [f"http://{host}:{server.port}/" for host in ("releases.example", "127.0.0.1", "evil.example")]
        environment = {**os.environ, **proxy.environment}
        subprocess.run([sys.executable, "-c", PROGRAM, *urls], env=environment, check=True)
