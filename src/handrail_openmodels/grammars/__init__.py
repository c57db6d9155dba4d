"""Constrained decoding: what a model may write next, as a grammar that a decoder holds it to.

A grammar is made from a toolset and a family of models, and written in the form that each decoder takes: structural
tags, Lark, the fields of a server's request, or a mask over the logits of one's own decoding.
An engine makes the automata: llguidance in this process, or the server's own.

Rule 1: a grammar helps the model, and is never a check: every call is validated as without one.
Rule 2: `Grammar.lossy` lists what a grammar cannot express.
"""

from handrail_openmodels.grammars.forms import ENGINES as ENGINES
from handrail_openmodels.grammars.forms import Grammar as Grammar
from handrail_openmodels.grammars.forms import grammar as grammar
