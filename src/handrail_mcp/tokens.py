"""Bearer tokens as the SDK asks for them; see `serving.tokens`."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken

from handrail.serving import tokens
from handrail.serving.tokens import digest_of as digest_of
from handrail.serving.tokens import make_entry as make_entry
from handrail_mcp.callers import SCOPE_CLAIM


class Tokens(tokens.BearerTokens):
    """The tokens that a server accepts. The SDK asks it as a `TokenVerifier`."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is; None for a token that is nobody's, or whose role is only to see."""
        owner = self.owner_of(token)
        if owner is None or owner.role == "see":
            return None
        claims = {} if owner.scope is None else {SCOPE_CLAIM: owner.scope}
        # without the token itself: what the SDK hands to tools and logs has no use for it
        return AccessToken(
            token="",
            client_id=owner.principal,
            scopes=[],
            subject=owner.principal,
            claims=claims,
        )
