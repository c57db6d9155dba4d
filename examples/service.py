"""An HTTP service as tools, from its OpenAPI document: a request that fails on the way is reported as what it is.

handrail tools from-openapi examples/service.json
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import handrail as hr


class Shop(BaseHTTPRequestHandler):
    """A stand-in for the service. It breaks down on its first order, after that order was taken."""

    seen: ClassVar[dict[str, object]] = {}

    def do_GET(self) -> None:
        self.say(200, {"order_id": self.path.rpartition("/")[2], "paid": 49.0})

    def do_POST(self) -> None:
        key, first = self.headers["Idempotency-Key"], not self.seen
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say(503, {}) if self.seen.setdefault(key, sent) and first else self.say(201, {"orders": len(self.seen)})

    def say(self, status: int, body: object) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


async def main(url: str) -> None:
    tools = hr.openapi(Path(__file__).with_name("service.json"), base_url=url, auth={"api key": "k-4711"})
    print(tools.summary(), *(f"left out: {each.name}: {each.reason}" for each in tools.left_out), sep="\n")
    async with hr.Runtime(tools) as runtime:
        calls = [
            ("getOrder", {"order_id": "../admin"}),
            ("placeOrder", {"sku": "tea", "count": 2}),
            ("deleteOrder", {"order_id": "A-1"}),
        ]
        for name, arguments in calls:
            result = await runtime.call(name, arguments)
            print(name, f"{result.attempts} attempts", result.value if result.ok else result.failure.code)


with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    asyncio.run(main(f"http://127.0.0.1:{server.server_address[1]}"))
    server.shutdown()
