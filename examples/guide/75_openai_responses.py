"""A shop's agent behind OpenAI's Responses: the official client asks, agrees to a refund, and reads the answer."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import openai
from starlette.applications import Starlette

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail_server.endpoints import Endpoints


@hr.tool(effect="write", approve="amount > 100")
def refund(order: str, amount: int) -> str:
    """Pay a part of an order back."""
    return f"paid {amount} back for {order}"


model = ScriptedModel([call("refund", order="A-1", amount=120), "Your refund is on its way."])  # or "openai:NAME"


async def main(store: str) -> None:
    async with hr.Runtime([refund], store=store) as runtime:
        app = Starlette(routes=Endpoints(runtime, {"shop": model}).routes)  # `handrail serve` has it at /v1
        transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        async with openai.AsyncOpenAI(base_url="http://shop/v1", api_key="none", http_client=transport) as client:
            first = await client.responses.create(model="shop", input="Order A-1 arrived broken.")
            asked = first.output[-1]
            print(asked.type, asked.name, asked.arguments)
            agreed = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
            second = await client.responses.create(model="shop", previous_response_id=first.id, input=[agreed])
            print(second.output[0].type, second.output[0].output)
            print(second.output_text)


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder, 'handrail.db')}"))
