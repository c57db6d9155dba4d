"""The claim that most of the contract is about, in a module that is quickly imported: other processes make it too."""

from handrail.effects import Claim

OVER_S, LONG_S = -1.0, 600.0

A_REFUND = Claim("", "refund:881", b"fp-881-20", "r1", "none", LONG_S, tool="refund")
