"""Every way to fetch through the guard, as one function of an address."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import httpx

import handrail as hr
from handrail_toolbox.network import aiohttp as for_aiohttp
from handrail_toolbox.network import httpx as for_httpx
from handrail_toolbox.network import requests as for_requests
from handrail_toolbox.webpage import ReadPage

TIMEOUT_S = 0.3
CERTIFICATES = ssl.create_default_context()
"""Made once: it takes longer than all the rest."""


def by_httpx2(url, allow, **how):
    with hr.http_client(
        allow, follow_redirects=True, timeout=TIMEOUT_S, verify=CERTIFICATES, **how
    ) as client:
        return client.get(url).text


def by_httpx2_async(url, allow, **how):
    async def get():
        async with hr.async_http_client(
            allow, follow_redirects=True, timeout=TIMEOUT_S, verify=CERTIFICATES, **how
        ) as client:
            return (await client.get(url)).text

    return asyncio.run(get())


def by_httpx(url, allow, **how):
    transport = for_httpx.GuardedTransport(allow, ssl_context=CERTIFICATES, **how)
    with httpx.Client(
        transport=transport,
        trust_env=False,
        follow_redirects=True,
        timeout=TIMEOUT_S,
        verify=CERTIFICATES,
    ) as client:
        return client.get(url).text


def by_httpx_async(url, allow, **how):
    async def get():
        transport = for_httpx.GuardedAsyncTransport(
            allow, ssl_context=CERTIFICATES, **how
        )
        async with httpx.AsyncClient(
            transport=transport,
            follow_redirects=True,
            timeout=TIMEOUT_S,
            verify=CERTIFICATES,
        ) as client:
            return (await client.get(url)).text

    return asyncio.run(get())


def by_requests(url, allow, **how):
    with for_requests.guarded_session(allow, **how) as session:
        return session.get(url, timeout=TIMEOUT_S).text


def by_aiohttp(url, allow, **how):
    async def get():
        connector = for_aiohttp.GuardedConnector(allow, **how)
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            ) as session,
            session.get(url) as answer,
        ):
            return await answer.text()

    return asyncio.run(get())


def by_read_page(url, allow, **how):
    if how:
        raise hr.ToolError("NO_RESOLVER", "read_page takes none")
    with hr.SyncRuntime([ReadPage(allow)]) as runtime:
        result = runtime.call("read_page", {"url": url})
    if result.failure is not None:
        raise hr.ToolError(result.failure.code, result.failure.message)
    return result.value["text"]


CLIENTS = {
    "httpx2": by_httpx2,
    "httpx2 async": by_httpx2_async,
    "httpx": by_httpx,
    "httpx async": by_httpx_async,
    "requests": by_requests,
    "aiohttp": by_aiohttp,
}
