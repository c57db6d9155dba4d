"""The network guard: where a tool that fetches may go, for httpx2, httpx, requests, aiohttp and programs in sandboxes.

| for | use |
|---|---|
| httpx2 | `hr.http_client(allow=[...])`, `hr.async_http_client(...)` |
| httpx | `httpx.Client(transport=handrail_toolbox.network.httpx.GuardedTransport(...), trust_env=False)` |
| requests | `handrail_toolbox.network.requests.guarded_session(...)` |
| aiohttp | `aiohttp.ClientSession(connector=handrail_toolbox.network.aiohttp.GuardedConnector(...))` |
| anything that takes a proxy, and programs in a sandbox | `handrail.network.proxy.EgressProxy(...)` |
"""
