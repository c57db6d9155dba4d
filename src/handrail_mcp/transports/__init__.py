"""Messages on their way between a session of the SDK and a peer: pipes, HTTP, and what makes them readable."""
