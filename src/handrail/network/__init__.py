"""The network guard: where a tool that fetches may go, for httpx2, httpx, requests, aiohttp and programs in sandboxes.

| for | use |
|---|---|
| httpx2 | `hr.http_client(allow=[...])`, `hr.async_http_client(...)` |
| httpx | `httpx.Client(transport=GuardedTransport(...), trust_env=False)` |
| requests | `guarded_session(...)` |
| aiohttp | `aiohttp.ClientSession(connector=GuardedConnector(...))` |
| anything that takes a proxy, and programs in a sandbox | `handrail.network.proxy.EgressProxy(...)` |

What stands behind httpx, requests and aiohttp is beside the ready-made tools, in `network` of their package.
"""
