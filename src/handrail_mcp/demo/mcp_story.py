"""`handrail demo --mcp`: a client, the gateway, two servers, one approval, and a description that changes overnight.

All of it is real: the gateway and the servers are processes of their own, and the client is that of the package `mcp`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp import Client, types
from mcp.client.stdio import StdioServerParameters, stdio_client
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from handrail.cli.demo.story import Language
from handrail.invisible import printable
from handrail_mcp.gateways.gateway import Gateway
from handrail_mcp.gateways.settings import add_servers, read_gateway

MAIL = {"to": "ann@example.com", "text": "Invoice 7 comes on Friday."}


class Sentences(Struct, frozen=True):
    """What the story says in one language."""

    scene: str
    agreed: str
    listed: str
    searched: str
    asked: str
    by_itself: str
    denied: str
    sent: str
    repeated: str
    night: str
    caught: str
    end: str


TEXTS: Mapping[Language, Sentences] = {
    "en": Sentences(
        scene="Two MCP servers, notes and mail, stand behind one gateway. Nobody has agreed to their tools yet,\n"
        "so a client would see none. This is what they say of themselves; the demo agrees:",
        agreed="agreed to",
        listed="The client lists the tools:",
        searched="A read runs at once:",
        asked="A write asks first, at the client:",
        by_itself="(nobody is at this terminal: the demo says yes)",
        denied="You said no, and nothing was sent. The client is told why:",
        sent="The mail is sent:",
        repeated="The client has lost the answer and sends the same call again:",
        night="Overnight the mail server has changed what it says of its tool. The gateway starts again:",
        caught="The changed tool is neither listed nor callable, until somebody agrees to the change:",
        end="In the mailbox",
    ),
    "zh": Sentences(
        scene="两个 MCP 服务器（notes 和 mail）在同一个网关之后。还没有人同意它们的工具，所以客户端一个也看不到。\n"
        "它们这样描述自己；演示表示同意：",
        agreed="已同意",
        listed="客户端列出工具：",
        searched="读操作立即执行：",
        asked="写操作先在客户端询问：",
        by_itself="（终端前没有人：演示自己回答“可以”）",
        denied="您拒绝了，什么也没有发送。客户端得知原因：",
        sent="邮件已发送：",
        repeated="客户端丢失了答复，把同一个调用再发一次：",
        night="夜里，mail 服务器改了对自己工具的描述。网关重新启动：",
        caught="在有人同意之前，改动过的工具既不列出，也不能调用：",
        end="邮箱里",
    ),
}  # fmt: skip


async def play(screen: Console, lang: Language, *, asks: bool) -> bool:
    """Play the story; return whether the mail was approved.

    Args:
        asks: Whether a person at this terminal is asked.
    """
    with TemporaryDirectory(prefix="handrail-demo-") as folder:
        story = _Story(screen, TEXTS[lang], Path(folder), asks=asks)
        return await story.play()


class _Story:
    def __init__(
        self, screen: Console, texts: Sentences, folder: Path, *, asks: bool
    ) -> None:
        self.screen = screen
        self.texts = texts
        self.folder = folder
        self.asks = asks
        self.config = folder / "gateway.toml"
        self.mailbox = folder / "mailbox"

    async def play(self) -> bool:
        self.mailbox.touch()
        program = ["-m", "handrail_mcp.demo.mcp_servers"]
        env = {"DEMO_MAILBOX": str(self.mailbox), "DEMO_NIGHT": "${DEMO_NIGHT:-}"}
        servers = {
            name: {
                "command": sys.executable,
                "args": [*program, name],
                "env": env,
                "trust": trust,
            }
            for name, trust in (("notes", "hints"), ("mail", "none"))
        }
        add_servers(self.config, servers)
        await self._agree()
        approved = await self._spend_the_day()
        await self._wake_up()
        self._say(f"{self.texts.end}: {len(self._mails())}")
        for mail in self._mails():
            self._show(mail)
        return approved

    async def _agree(self) -> None:
        self._say(self.texts.scene)
        gateway = Gateway(read_gateway(self.config))
        await gateway.start()
        await gateway.aclose()
        for name in gateway.upstreams:
            for tool, pin in gateway.pins.get(name).items():
                described: Any = pin.seen
                self._show(f"+ {name}/{tool}: {described['description']}")
            gateway.pins.agree(name)

    async def _spend_the_day(self) -> bool:
        async with self._connect(night=False) as client:
            self._say(self.texts.listed)
            await self._list(client)
            self._say(self.texts.searched)
            await self._call(client, "notes_find", {"word": "invoice"})
            self._say(self.texts.asked)
            answer = await self._call(client, "mail_send", MAIL)
            if answer.is_error:
                self._say(self.texts.denied)
                self._show(_text_of(answer))
                return False
            self._say(self.texts.repeated)
            await self._call(client, "mail_send", MAIL)
        return True

    async def _wake_up(self) -> None:
        self._say(self.texts.night)
        async with self._connect(night=True) as client:
            await self._list(client)
            self._say(self.texts.caught)
            gateway = Gateway(read_gateway(self.config))
            self._show(gateway.pins.diff("mail", "send"))
            await self._call(client, "mail_send", MAIL)

    # ------------------------------------------------------------------ the client

    def _connect(self, *, night: bool) -> AbstractAsyncContextManager[Client]:
        command = ["-m", "handrail", "gateway", "--config", str(self.config), "run"]
        env = {**os.environ, "DEMO_NIGHT": "1" if night else ""}
        program = StdioServerParameters(command=sys.executable, args=command, env=env)
        return Client(
            stdio_client(program), mode="legacy", elicitation_callback=self._ask
        )

    async def _ask(
        self, context: Any, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        del context
        self._show(params.message)
        granted = True
        if self.asks:
            granted = input("  [y/N] ").strip().lower() in ("y", "yes")
        else:
            self._show(self.texts.by_itself)
        return types.ElicitResult(action="accept", content={"approve": granted})

    async def _list(self, client: Client) -> None:
        listed = await client.list_tools()
        self._show(", ".join(tool.name for tool in listed.tools))

    async def _call(
        self, client: Client, name: str, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        self._show(f"> {name} {json.dumps(arguments)}")
        answer = await client.call_tool(name, arguments)
        self._show(f"< {_text_of(answer)}")
        return answer

    # ------------------------------------------------------------------ the screen

    def _say(self, sentence: str) -> None:
        self.screen.print()
        self.screen.print(Text(sentence, style="bold"), soft_wrap=True)

    def _show(self, text: str) -> None:
        for line in printable(text, keep="\n").splitlines():
            self.screen.print(Text(f"  {line}"), soft_wrap=True)

    def _mails(self) -> list[str]:
        return self.mailbox.read_text(encoding="utf-8").splitlines()


def _text_of(answer: types.CallToolResult) -> str:
    return "\n".join(
        each.text for each in answer.content if isinstance(each, types.TextContent)
    )
