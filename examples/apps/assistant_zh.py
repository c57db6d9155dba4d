"""中文助手：查订单、看天气、经批准发一封邮件。  A Chinese assistant: orders, weather, and one mail after approval.

    python examples/apps/assistant_zh.py            # 离线：脚本模型、内存中的订单库、本机的替身邮箱；由程序自己批准
    python examples/apps/assistant_zh.py --ask      # 由您批准、拒绝或先修改
    python examples/apps/assistant_zh.py --model openai:NAME --smtp smtp.example.com --sender me@example.com "问题"

最后一行用真实模型和真实邮件服务器（密码在环境变量 SMTP_PASSWORD 里），每封信都先问您。所展示的：邮件服务器第一次忙，
模型又把同一封信要求了两遍，邮箱里仍然只有一封；混进订单号里的 SQL 到不了数据库。
"""

import argparse
import asyncio
import sqlite3
from contextlib import nullcontext

import handrail as hr
from handrail import guards
from handrail.approvers.terminal import TerminalApprover
from handrail.cli.printer import Printer, console
from handrail.cli.timeline import Timeline
from handrail.testing import ScriptedApprover, ScriptedModel, call
from handrail_toolbox.mail import SendEmail, Server
from stand_ins.mail import Mailbox

QUESTION = "订单 A-1042 到哪儿了？收货城市明天要是下雨，就发邮件告诉 li.na@example.com 取件时带伞。"
SYSTEM = "你是一家网店的助手。先查清楚再回答；邮件写给谁、写什么，只用查到的和用户说的内容。"
FORECAST = {"杭州": ("小雨", 17), "北京": ("晴", 12), "上海": ("多云", 19)}
MAIL = {
    "to": ["li.na@example.com"],
    "subject": "订单 A-1042 明天送达，杭州有小雨",
    "text": "李娜，您好：\n\n订单 A-1042（茶具一套）明天送达杭州西湖路驿站。明天小雨，取件请带伞。\n\n网店助手\n",
}


class GetOrder(hr.BaseTool):
    name, effect, timeout_s, blocking = "get_order", "read", 5, False
    aliases = ("查订单", "物流", "快递到哪了")

    def open(self):
        self.orders = sqlite3.connect(":memory:", check_same_thread=False)
        self.orders.execute("CREATE TABLE orders AS SELECT 'A-1042' id, '茶具' goods, '杭州' city, '明天送达' state")

    def run(self, order_id: guards.Identifier) -> dict[str, str]:
        """按订单号查询一个订单的商品、收货城市和物流状态。

        用于回答订单到哪了；不要用于没有订单号的问题，那时请先问用户。返回商品、城市和状态。

        参数：
            order_id: 订单号，例如 "A-1042"。
        """
        for row in self.orders.execute("SELECT goods, city, state FROM orders WHERE id = ?", [order_id]):
            return dict(zip(("goods", "city", "state"), row, strict=True))
        raise hr.ToolError("ORDER_NOT_FOUND", f"没有订单 {order_id}。", suggestion="请用户核对订单号。")

    def close(self):
        self.orders.close()


@hr.tool(effect="read", timeout_s=5, aliases=("查天气", "天气预报", "下雨"))
async def get_forecast(city: str) -> dict[str, str | int]:
    """查询一个城市明天的天气和气温（摄氏度）。

    用于回答某个城市会不会下雨、冷不冷；不要用于过去的天气。返回天气和气温。

    参数：
        city: 城市名，例如 "杭州"。
    """
    if city not in FORECAST:
        raise hr.ToolError("CITY_NOT_FOUND", f"没有 {city} 的天气。", suggestion=f"可查：{'、'.join(FORECAST)}。")
    sky, celsius = FORECAST[city]
    return {"city": city, "sky": sky, "celsius": celsius}


def after_the_mail(messages):
    outcome = "已发邮件给 li.na@example.com。" if messages[-1].result.ok else "邮件没有得到批准，没有发出。"
    return f"订单 A-1042（茶具一套）明天送达杭州西湖路驿站；杭州明天小雨，17 °C。{outcome}"


SCRIPT = [
    call("get_order", order_id="A-1042' OR '1'='1"),  # 被类型拦下，数据库没有见到它
    call("get_order", order_id="A-1042"),
    call("get_forecast", city="杭州"),
    [call("send_email", **MAIL), call("send_email", **MAIL)],
    after_the_mail,
]


async def assist(question, model, send, approver):
    """提问，打印过程，返回这一次运行。"""
    (printer := Printer(Timeline(), console())).question(question)
    async with hr.Runtime([GetOrder(), get_forecast, send], approver=approver, observers=[printer]) as runtime:
        run = await runtime.run(question, model=model, system=SYSTEM, budget=hr.Budget(time_s=120, calls=20))
    printer.say(run.text or run.reason)
    return run


def main(arguments=None):
    """运行；返回这一次运行和替身邮箱里的信。"""
    parser = argparse.ArgumentParser()
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--ask", action="store_true", help="发信之前问您")
    parser.add_argument("--model", help="真实模型，例如 openai:NAME")
    parser.add_argument("--smtp", help="真实的邮件服务器；需要 --model")
    parser.add_argument("--sender", default="shop@example.com", help="发件人，也是服务器上的用户名")
    given = parser.parse_args(arguments)
    if given.smtp and not given.model:
        parser.error("--smtp 需要 --model：脚本模型只认识替身邮箱")
    asks = given.ask or given.smtp
    approver = TerminalApprover() if asks else ScriptedApprover([hr.Approval(True, by="程序自己，不是人")] * 2)
    with nullcontext() if given.smtp else Mailbox(faults=["busy"]) as mailbox:
        server = Server(mailbox.host, mailbox.port, tls="none") if mailbox else Server(given.smtp, user=given.sender)
        send, model = SendEmail(server, sender=given.sender), given.model or ScriptedModel(SCRIPT)
        run = asyncio.run(assist(given.question, model, send, approver))
    for mail in mailbox.mails if mailbox else ():
        print(f"\n替身邮箱收到：{mail['To']} | {mail['Subject']}\n{mail.get_content().rstrip()}")
    return run, mailbox.mails if mailbox else None


if __name__ == "__main__":
    main()
