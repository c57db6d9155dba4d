"""The demo's world and its script: `cluster` is what the tools act on, `story` what the scripted model says."""
