"""Conversations of many questions: `session` keeps them under a name, `message_json` carries them elsewhere."""
