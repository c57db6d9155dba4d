"""Names of spans, attributes and metrics, as OpenTelemetry's conventions for generative AI and MCP have them.

The conventions are in development and have a repository of their own. These names are those of `SCHEMA_URL`, and of the
GenAI repository as of October 2026 for what moved there earlier: `gen_ai.execute_tool.duration` and
`gen_ai.invoke_agent.duration`.

Names that begin with `handrail.` are our own.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions; sent with every span and metric."""

# operations, and with them the names of spans
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITTEN_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"

TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_DESCRIPTION = "gen_ai.tool.description"

# content: only where somebody has asked for it
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"

MCP_METHOD = "mcp.method.name"
MCP_PROTOCOL_VERSION = "mcp.protocol.version"
RPC_STATUS = "rpc.response.status_code"
NETWORK_TRANSPORT = "network.transport"

RUN_ID = "handrail.run.id"
RUN_STATUS = "handrail.run.status"
SCOPE = "handrail.scope"
PRINCIPAL = "handrail.principal"
TURN = "handrail.turn"
RECALLED_CALLS = "handrail.run.recalled_calls"
ATTEMPT = "handrail.call.attempt"
ATTEMPTS = "handrail.call.attempts"
MAX_ATTEMPTS = "handrail.call.max_attempts"
PENDING = "handrail.call.pending"
RISK = "handrail.risk"
PERMISSION = "handrail.permission"
ISOLATION = "handrail.isolation"
APPROVAL_DECISION = "handrail.approval.decision"
APPROVAL_BY = "handrail.approval.by"
WRITE_KEY = "handrail.idempotency.key"
WRITE_OUTCOME = "handrail.idempotency.outcome"
QUEUE_MS = "handrail.queue.ms"
RESULT_BYTES = "handrail.result.bytes"
RESULT_TRUNCATED = "handrail.result.truncated"
RESULT_HANDLE = "handrail.result.handle"
REPAIR = "handrail.repair"
FAILURE_STAGE = "handrail.failure_stage"
ERROR_CODE = "handrail.error.code"
ERROR_RETRYABLE = "handrail.error.retryable"
RETRY_IN_S = "handrail.retry_in_s"

# events of spans
EVENT_ATTEMPT = "handrail.attempt"
EVENT_ATTEMPT_FAILED = "handrail.attempt.failed"
EVENT_APPROVAL_ASKED = "handrail.approval.asked"
EVENT_APPROVAL_GIVEN = "handrail.approval.given"
EVENT_FOLDED = "handrail.context.folded"
EVENT_LATE = "handrail.call.finished_late"

# metrics
OPERATION_DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOOL_DURATION = "gen_ai.execute_tool.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
MCP_CLIENT_DURATION = "mcp.client.operation.duration"
MCP_SERVER_DURATION = "mcp.server.operation.duration"

SECONDS_OF_A_REQUEST = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
SECONDS_OF_A_RUN = (
    0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6,
)  # fmt: skip
SECONDS_OF_MCP = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
TOKENS = tuple(4**power for power in range(14))
"""Limits of the buckets that the conventions name for each histogram."""

PROVIDERS = {
    "openai": "openai",
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "anthropic": "anthropic",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
    "cohere": "cohere",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "deepseek": "deepseek",
    "groq": "groq",
    "moonshot": "moonshot_ai",
    "perplexity": "perplexity",
    "xai": "x_ai",
}
"""What the conventions call a provider, by its name before the colon of a model's name; others keep their own."""

FINISHES = {
    "stop": "stop",
    "calls": "tool_call",
    "length": "length",
    "refused": "content_filter",
    "error": "error",
}
"""What the conventions call the end of an answer, by `Turn.finish`."""

STAGES = {
    "UNKNOWN_TOOL": "resolve",
    "BAD_JSON": "parse",
    "TRUNCATED_CALL": "parse",
    "INVALID_ARGUMENTS": "validate",
    "RULE_VIOLATED": "check",
    "NOT_PERMITTED": "permit",
    "NOT_APPROVED": "approve",
    "APPROVAL_EXPIRED": "approve",
    "REPEATED_CALL": "plan",
    "BUDGET_EXHAUSTED": "plan",
    "IDEMPOTENCY_KEY_REUSED": "claim",
    "IN_PROGRESS": "claim",
    "NOT_ISOLATED": "isolate",
}
"""At which stage a call failed, by the failure's code; any other one before the tool's start is `start`, after it
`invoke`."""
