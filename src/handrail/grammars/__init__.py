"""Constrained decoding: what a model may write next, as a grammar that a decoder holds it to.

A grammar is made of a toolset and a family of models, and written in the form that each decoder takes: structural tags,
Lark, GBNF, the fields of a server's request, or a mask over the logits of one's own decoding.

Rule 1: a grammar is a help to the model, and never a check: every call is validated as without one.
Rule 2: what a grammar cannot say stands in `Grammar.lossy`.
"""

from handrail.grammars.forms import ENGINES as ENGINES
from handrail.grammars.forms import Grammar as Grammar
from handrail.grammars.forms import grammar as grammar
