"""Rows of the form `openai`, rewritten as TRL and LLaMA-Factory read them."""

import json


def as_trl(row):
    """Rewrite a row for TRL's `SFTTrainer`: arguments are objects, and results name their tool."""
    names = {}
    for message in row["messages"]:
        if not message["content"]:
            del message["content"]
        for call in message.get("tool_calls", ()):
            names[call.pop("id")] = call["function"]["name"]
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            message["name"] = names[message.pop("tool_call_id")]
    return row


def as_sharegpt(row):
    """Rewrite a row for LLaMA-Factory's `sharegpt`: an answer is one call or a text."""
    speakers = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
    entries = []
    for message in as_trl(row)["messages"]:
        speaker, value = speakers[message["role"]], message.get("content", "")
        if "tool_calls" in message:
            (call,) = message["tool_calls"]
            speaker, value = "function_call", json.dumps(call["function"], ensure_ascii=False)
        entries.append({"from": speaker, "value": value})
    tools = [tool["function"] for tool in row.get("tools", ())]
    return {"conversations": entries, "tools": json.dumps(tools, ensure_ascii=False)}


if __name__ == "__main__":
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "北京"}'}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "晴"}
    row = {"messages": [{"role": "user", "content": "北京天气？"}, answer, result]}
    print(*as_sharegpt(row)["conversations"], sep="\n")
