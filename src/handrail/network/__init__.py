"""The network guard: where a tool that fetches may go, for httpx2, httpx, requests, aiohttp and programs in sandboxes.

| for | use |
|---|---|
| httpx2 | `hr.http_client(allow=[...])`, `hr.async_http_client(...)` |
| httpx | `httpx.Client(transport=handrail.network.httpx.GuardedTransport(...), trust_env=False)` |
| requests | `handrail.network.requests.guarded_session(...)` |
| aiohttp | `aiohttp.ClientSession(connector=handrail.network.aiohttp.GuardedConnector(...))` |
| anything that takes a proxy, and programs in a sandbox | `handrail.network.proxy.EgressProxy(...)` |
"""
