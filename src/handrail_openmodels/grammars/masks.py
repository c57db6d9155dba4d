"""A grammar as a mask over logits, for those who decode themselves; the engine is llguidance.

    model.generate(**inputs, logits_processor=[grammar.mask(tokenizer)])                      # transformers
    llama(prompt, logits_processor=LogitsProcessorList([grammar.mask(llama)]))                 # llama-cpp-python

Rule 1: a matcher of llguidance never raises: after each step it is asked whether it is in error.
Rule 2: a mark of the family is matched as text. A tokenizer that holds it as a special token spells it so, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from handrail.errors import ConfigError, ModelError, describe_install


def _engine() -> Any:
    try:
        import llguidance
        import numpy  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"a mask needs the extra `openmodels`: {describe_install('openmodels')}"
        ) from error
    return llguidance


class Marks(Struct, frozen=True):
    """The control tokens of a family: those within an answer, and those that end it."""

    inside: frozenset[str] = frozenset()
    ends: tuple[str, ...] = ()


class Mask:
    """A logits processor: called with the ids so far and the scores of the next token, returns the scores masked.

    One mask holds the state of one generation, of any number of sequences side by side. A call with ids that do not go
    on from those of the last call begins a new generation.
    """

    def __init__(self, lark: str, tokenizer: Any, marks: Marks) -> None:
        engine = _engine()
        self._tokenizer = read_tokenizer(tokenizer, marks)
        matcher: Any = engine.LLMatcher(self._tokenizer, lark, log_level=0)
        self._first = self._check(matcher)
        self._rows: dict[tuple[int, ...], Any] = {}
        self._prompt = -1

    def reset(self) -> None:
        """Begin a new generation with the next call."""
        self._rows = {}
        self._prompt = -1

    def allowed(self, generated: Sequence[int]) -> Any:
        """Return which tokens may come after these, as a numpy array of booleans, one for each id.

        Raises:
            ModelError: One of the tokens was not allowed.
        """
        return self._find_allowed(self._matcher(tuple(generated)))

    def is_complete(self, generated: Sequence[int]) -> bool:
        """Whether the answer may end after these tokens."""
        return bool(self._matcher(tuple(generated)).is_accepting())

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores, those of tokens that may not come next being minus infinity."""
        import numpy

        length = _length_of(input_ids)
        goes_on = 0 <= self._prompt <= length
        # Convert the new tokens only: a long prompt would cost more than the mask.
        rows = _rows_of(input_ids, self._prompt if goes_on else length)
        matchers = [self._follow(row) if goes_on else None for row in rows]
        if None in matchers:
            self._prompt = length
            rows = [()] * len(rows)
            matchers = [self._first.deep_copy() for _ in rows]
        self._rows = dict(zip(rows, matchers, strict=True))
        return _apply(numpy.stack([*map(self._find_allowed, matchers)]), scores)

    def _find_allowed(self, matcher: Any) -> Any:
        import numpy

        bits = numpy.frombuffer(matcher.compute_bitmask(), dtype=numpy.uint8)
        self._check(matcher)
        return numpy.unpackbits(bits, bitorder="little").view(bool)

    def _follow(self, generated: tuple[int, ...]) -> Any:
        """Return the matcher of a sequence that equals one of the last call, or adds one token to it; else None."""
        matcher = self._rows.get(generated)
        if matcher is not None or not generated:
            return matcher
        before = self._rows.get(generated[:-1])
        if before is None:
            return None
        return self._read(before.deep_copy(), generated[-1:])

    def _matcher(self, generated: tuple[int, ...]) -> Any:
        """Return the matcher that has read these tokens."""
        matcher = self._follow(generated)
        if matcher is None:
            matcher = self._read(self._first.deep_copy(), generated)
        self._rows[generated] = matcher
        return matcher

    def _read(self, matcher: Any, tokens: Sequence[int]) -> Any:
        """Let a matcher read tokens, and return it.

        Raises:
            ModelError: One of them is not allowed.
        """
        for token in tokens:
            if matcher.is_stopped() and token in self._tokenizer.eos_tokens:
                break
            if not matcher.consume_token(token):
                raise ModelError(
                    f"token {token} is not what the grammar allows; were the scores masked?",
                    code="not_allowed",
                )
        return matcher

    def _check(self, matcher: Any) -> Any:
        if matcher.is_error():
            raise ConfigError(f"the grammar cannot be used: {matcher.get_error()}")
        return matcher


def _length_of(input_ids: Any) -> int:
    """Return how many ids each sequence has; of a tensor, an array or a list, with one dimension or two."""
    if hasattr(input_ids, "shape"):
        return int(input_ids.shape[-1])
    return len(input_ids[0] if _is_nested(input_ids) else input_ids)


def _rows_of(input_ids: Any, start: int) -> list[tuple[int, ...]]:
    """Return the ids of each sequence from position `start` on."""
    if hasattr(input_ids, "shape"):
        ids = input_ids[..., start:].tolist()
        return [*map(tuple, ids)] if len(input_ids.shape) > 1 else [tuple(ids)]
    if _is_nested(input_ids):
        return [tuple(row[start:]) for row in input_ids]
    return [tuple(input_ids[start:])]


def _is_nested(input_ids: Any) -> bool:
    return bool(input_ids) and isinstance(input_ids[0], list)


def _apply(allowed: Any, scores: Any) -> Any:
    import numpy

    vocabulary = scores.shape[-1]
    if allowed.shape[-1] < vocabulary:
        missing = vocabulary - allowed.shape[-1]
        allowed = numpy.pad(allowed, ((0, 0), (0, missing)))
    allowed = allowed[:, :vocabulary].reshape(scores.shape)
    if isinstance(scores, numpy.ndarray):
        masked = numpy.where(allowed, scores, -numpy.inf)
        return masked.astype(scores.dtype, copy=False)
    torch = __import__(type(scores).__module__.partition(".")[0])
    forbidden = torch.from_numpy(~allowed).to(scores.device)
    return scores.masked_fill(forbidden, float("-inf"))


# ---------------------------------------------------------------------- tokenizers


class _Vocabulary:
    """What llguidance needs of a tokenizer: bytes by id, the end, and how a text is cut."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        *,
        eos: int,
        special: Sequence[int],
        encode: Callable[[bytes], Sequence[int]],
    ) -> None:
        self.tokens = list(tokens)
        self.eos_token_id = eos
        self.bos_token_id = None
        self.special_token_ids = list(special)
        self._encode = encode

    def __call__(self, text: bytes | str) -> list[int]:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        return list(self._encode(raw))


def read_tokenizer(tokenizer: Any, marks: Marks) -> Any:
    """Return a tokenizer as llguidance takes it, with the family's marks as text.

    Raises:
        ConfigError: The tokenizer is of an unsupported kind.
    """
    engine = _engine()
    if isinstance(tokenizer, engine.LLTokenizer):
        return tokenizer
    if hasattr(tokenizer, "backend_tokenizer"):
        return _read_fast(tokenizer, marks)
    if hasattr(tokenizer, "detokenize") and hasattr(tokenizer, "n_vocab"):
        tokenizer = _read_llama(tokenizer, marks)
    elif not (hasattr(tokenizer, "tokens") and hasattr(tokenizer, "eos_token_id")):
        raise ConfigError(
            f"{type(tokenizer).__name__} is no tokenizer that is known: pass a fast tokenizer of transformers, "
            "a Llama of llama-cpp-python, an LLTokenizer, or an object with `tokens` and `eos_token_id`"
        )
    wrapped = engine.TokenizerWrapper(_with_cutting(tokenizer))
    return engine.LLTokenizer(wrapped, eos_token=tokenizer.eos_token_id)


def _with_cutting(tokenizer: Any) -> Any:
    """Return a tokenizer that can cut a text: one without a way to do that is cut at its longest tokens."""
    if callable(tokenizer):
        return tokenizer
    longest = max(map(len, tokenizer.tokens))
    special = set(getattr(tokenizer, "special_token_ids", ()))
    ids = {
        bytes(text): id
        for id, text in enumerate(tokenizer.tokens)
        if text and id not in special
    }

    def encode(text: bytes) -> list[int]:
        cut: list[int] = []
        while text:
            size = next(
                (size for size in range(longest, 0, -1) if text[:size] in ids), 0
            )
            if not size:
                raise ConfigError(f"the tokenizer has no token for {text[:1]!r}")
            cut.append(ids[text[:size]])
            text = text[size:]
        return cut

    return _Vocabulary(
        tokenizer.tokens,
        eos=tokenizer.eos_token_id,
        special=sorted(special),
        encode=encode,
    )


def _read_fast(tokenizer: Any, marks: Marks) -> Any:
    """Read a fast tokenizer of transformers."""
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    described["padding"] = described["truncation"] = None
    for each in described.get("added_tokens") or ():
        if each["content"] in marks.inside:
            each["special"] = False
    ends = _find_ends(tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids, marks)
    return _engine().LLTokenizer(json.dumps(described), eos_token=ends)


def _find_ends(eos: int, find: Callable[[str], int | None], marks: Marks) -> list[int]:
    """Return the tokens that may end an answer: the tokenizer's own, and the family's marks that are tokens."""
    ids = [find(mark) for mark in marks.ends]
    return [eos, *dict.fromkeys(id for id in ids if id is not None and id != eos)]


def _read_llama(llama: Any, marks: Marks) -> _Vocabulary:
    """Read the vocabulary of a `Llama` of llama-cpp-python."""
    plain = [llama.detokenize([id], special=False) for id in range(llama.n_vocab())]
    named = [llama.detokenize([id], special=True) for id in range(llama.n_vocab())]
    special = [
        id
        for id, (shown, name) in enumerate(zip(plain, named, strict=True))
        if not shown and name and name.decode("utf-8", "replace") not in marks.inside
    ]
    return _Vocabulary(
        named,
        eos=llama.token_eos(),
        special=special,
        encode=lambda text: llama.tokenize(text, add_bos=False, special=True),
    )
