"""What `handrail bench frameworks` plays on each agent framework, plain and with handrail.

Its scripted models are for your own tests, too: `on_langchain.ScriptedChat`, `on_openai_agents.ScriptedAgentsModel`,
`on_pydantic_ai.scripted_model`.

`scenarios` has the tools, the scripted model's turns and what is wanted; `on_NAME` brings one framework to play them;
`play` plays one scenario in a process of its own.

Rule 1: nothing of handrail imports this folder but the command, and only `on_NAME` imports a framework.
Rule 2: plain and with handrail differ in nothing but handrail: the same functions, script, store of the framework.
"""
