"""Messages of JSON-RPC between us and one peer: lines of pipes and sockets, and requests over HTTP."""
