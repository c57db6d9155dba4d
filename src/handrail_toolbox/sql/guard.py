"""What a query may be, seen in its text: one SELECT, over tables, with functions that only compute.

The engine is the first guard, see `sqlite` and `postgres`; this is the second. It knows what the first cannot refuse
(functions with effects, which an engine calls in a read-only transaction too), and it answers in words.

Rule 1: what may do harm is refused; so is a function that is not in `FUNCTIONS`.
Rule 2: the text that was checked is the text that runs; it is never generated from the tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from handrail.errors import ConfigError, ToolError, describe_install

try:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.tokenizer_core import TokenType
except ImportError as error:
    raise ConfigError(
        f"the SQL tools need sqlglot: {describe_install('sql')}"
    ) from error

MOST_DEPTH = 60
"""Brackets within brackets. A parser calls itself for each, and an engine plans each."""

MOST_TABLES = 1_000
"""What a query may read when each name of a WITH is replaced by its query."""

MOST_CHARACTERS = 100
"""That `trim` takes off and `translate` replaces, written out in the query."""

# What only computes, in SQLite or Postgres. SQLite asks for each by its authorizer; Postgres has no such question.
# `json_patch` and `unhex` are left out: a megabyte would take SQLite minutes, in which it cannot be interrupted.
_COMPUTING = """
abs acos acosh age any_value array_agg array_cat array_length array_position array_to_string asin asinh atan atan2
atanh avg bit_and bit_length bit_or bm25 bool_and bool_or btrim cardinality casefold cbrt ceil ceiling char
char_length character_length chr coalesce concat concat_ws corr cos cosh cot count covar_pop covar_samp cume_dist
current_date current_time current_timestamp date date_bin date_part date_trunc datetime decode degrees dense_rank
div encode every exp extract factorial first_value floor format gcd generate_series glob greatest group_concat
grouping hex highlight ifnull iif initcap instr isfinite json json_agg json_array json_array_elements
json_array_elements_text json_array_length json_build_array json_build_object json_each json_each_text
json_error_position json_extract json_extract_path json_extract_path_text json_group_array json_group_object
json_insert json_object json_object_agg json_object_keys json_pretty json_quote json_remove json_replace
json_set json_strip_nulls json_tree json_type json_typeof json_valid jsonb_agg jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
jsonb_extract_path jsonb_extract_path_text jsonb_object_agg jsonb_object_keys jsonb_path_query jsonb_pretty
jsonb_set jsonb_strip_nulls jsonb_typeof julianday justify_days justify_hours justify_interval lag last_value lcm
lead least left length like likelihood likely ln localtime localtimestamp log log10 log2 lower lpad ltrim make_date
make_interval make_time make_timestamp match max md5 min mod mode now nth_value ntile nullif num_nonnulls num_nulls
octet_length overlay percent_rank percentile_cont percentile_disc phraseto_tsquery pi plainto_tsquery position pow
power printf quote quote_literal radians rank regexp regexp_count regexp_instr regexp_like regexp_match
regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy
regr_count regr_intercept regr_r2 regr_slope repeat replace reverse right round row_number row_to_json rpad rtrim
sign sin sinh snippet split_part sqrt starts_with stddev stddev_pop stddev_samp strftime string_agg string_to_array
string_to_table strpos substr substring sum tan tanh time timediff to_char to_date to_json to_jsonb to_number
to_timestamp to_tsquery to_tsvector total translate trim trim_scale trunc ts_headline ts_rank ts_rank_cd typeof
unicode unistr unixepoch unlikely unnest upper var_pop var_samp variance websearch_to_tsquery width_bucket
"""
FUNCTIONS = frozenset(_COMPUTING.split())

_PARAMETER = re.compile(r"\$([0-9]{1,3})(?![0-9A-Za-z_$])")
_OTHER_PARAMETERS = (TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON)
_OTHER_TEXTS = (
    TokenType.HEREDOC_STRING,
    TokenType.BYTE_STRING,
    TokenType.UNICODE_STRING,
    TokenType.RAW_STRING,
    TokenType.NATIONAL_STRING,
)

_WRITES: tuple[type[exp.Expr], ...] = (
    exp.DML,
    exp.DDL,
    exp.Drop,
    exp.Alter,
    exp.Command,
    exp.Copy,
    exp.Attach,
    exp.Detach,
    exp.Pragma,
    exp.Set,
    exp.Into,
    exp.Lock,
    exp.Transaction,
    exp.Commit,
    exp.Rollback,
    exp.Use,
    exp.Kill,
    exp.TruncateTable,
)


class Query(Struct, frozen=True):
    """A query that the guard let pass.

    Attributes:
        text: As the model wrote it, without the semicolon at its end.
        parameters: For `$1`, `$2`, ... in it.
    """

    text: str
    parameters: Sequence[Any] = ()


def check_query(text: str, parameters: Sequence[Any], dialect: str) -> Query:
    """Return the query, or raise what the model reads.

    Args:
        dialect: `sqlite` or `postgres`.

    Raises:
        ToolError: It is no single query, writes, or asks for what may do harm.
    """
    # a byte order mark, as some editors begin a file with
    text = text.removeprefix("\ufeff")
    # What is read is a copy of the same length, in which `$1` is a name: sqlglot takes `$1 + $` for the beginning of a
    # quoted text, in which a call could hide.
    copy = _PARAMETER.sub(r"_\1", text)
    tokens = _read(sqlglot.tokenize, copy, dialect)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    _check_outline(tokens)
    _check_parameters(tokens, text, len(parameters), dialect)
    end = tokens[-1].end + 1
    for tree in _read(sqlglot.parse, copy[:end], dialect):
        _check_expansion(_only_reads(tree, dialect))
    return Query(text[:end], parameters)


def _read(how: Callable[..., list[Any]], text: str, dialect: str) -> list[Any]:
    try:
        return how(text, dialect=dialect)
    except Exception as error:
        # on garbage sqlglot raises AttributeError as well as errors of its own
        if isinstance(error, SqlglotError):
            why = str(error).split("\n")[0].rstrip(".")[:200]
        else:
            why = "it makes no sense"
        raise _refusal(
            f"It cannot be read: {why}.", "Mend the syntax, or write it more simply."
        ) from None


def _check_outline(tokens: Sequence[Any]) -> None:
    """Look at the words alone: where it begins, how many there are of it, how deep it is."""
    if not tokens or tokens[0].token_type not in (
        TokenType.SELECT,
        TokenType.WITH,
        TokenType.L_PAREN,
    ):
        raise _refusal(
            "It must begin with SELECT or WITH.",
            "Only queries that read are possible here.",
        )
    depth = 0
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.SEMICOLON:
            raise _refusal(
                "It holds more than one statement.", "Send one query at a time."
            )
        if any(comment.lstrip().startswith("!") for comment in token.comments):
            raise _refusal(
                "It holds a comment that some databases execute.",
                "Leave the comment out.",
            )
        # In texts of other kinds than 'this', parser and engine may not agree where they end.
        if kind in _OTHER_TEXTS or (
            "$" in token.text and kind not in (TokenType.STRING, TokenType.IDENTIFIER)
        ):
            raise _refusal(
                "It quotes a text in an unusual way.",
                "Write text as 'text', and a quote in it as ''.",
            )
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth > MOST_DEPTH:
            raise _refusal(
                f"It has more than {MOST_DEPTH} brackets within brackets.",
                "Use WITH to take it apart.",
            )


def _check_parameters(
    tokens: Sequence[Any], text: str, count: int, dialect: str
) -> None:
    """Hold `$1`, `$2` in the text against the number of values beside it."""
    places = {int(token.text[1:]) for token in tokens if text[token.start] == "$"}
    # In Postgres these are operators.
    others = dialect == "sqlite" and any(
        token.token_type in _OTHER_PARAMETERS for token in tokens
    )
    if others or places != set(range(1, count + 1)):
        raise _refusal(
            f"{len(places)} parameters are named in it as `$1`, `$2`, ... and {count} values came with it.",
            "Write $1 where the first of `parameters` belongs, $2 for the second, and use every one.",
        )


def _only_reads(tree: exp.Expr | None, dialect: str) -> exp.Query:
    if not isinstance(tree, exp.Query):
        raise _refusal("It is no query.", "Only queries that read are possible here.")
    for node in tree.walk():
        if isinstance(node, _WRITES):
            raise _refusal(
                f"{_word(node)} is not possible here: this database is open for reading only.",
                "Ask for what you need with SELECT alone; to change something use another tool, or tell the user.",
            )
        if isinstance(node, exp.Anonymous) and node.name.lower() not in FUNCTIONS:
            raise _refusal(
                f"The function {node.name[:60]!r} is not among those that may be used here.",
                "Use common functions of SQL, or do the rest of the work outside of the query.",
            )
        if _tells_of_the_session(node, dialect):
            what = "It asks about the connection itself, which cannot be read here."
            raise _refusal(
                what, "Read the tables. A column of such a name must be quoted."
            )
        if (characters := _characters(node)) is not None and not _is_short(characters):
            raise _refusal(
                f"{_word(node)} takes its characters from somewhere else than its text.",
                f"Write them out, at most {MOST_CHARACTERS}, as in trim(name, ' ,').",
            )
        if isinstance(node, exp.Table) and (system := _system(node)):
            raise _refusal(
                f"{system!r} belongs to the database itself.",
                "Use `list_tables` and `describe_table`.",
            )
    return tree


def _tells_of_the_session(node: exp.Expr, dialect: str) -> bool:
    """Whether it names the user, the database or the engine; sqlglot types these itself, and `FUNCTIONS` is not asked.

    Postgres reads `user` so wherever it is alone: a column of that name must be quoted there.
    """
    if isinstance(node, exp.Column | exp.Table):
        alone = (
            isinstance(node.this, exp.Identifier)
            and not node.this.quoted
            and len(node.parts) == 1
        )
        return dialect == "postgres" and alone and node.name.lower() in _OF_SESSION
    name = type(node).__name__
    return isinstance(node, exp.Func) and (
        name == "SessionUser" or (name.startswith("Current") and name not in _TIMES)
    )


_OF_SESSION = {
    "user",
    "system_user",
    "session_user",
    "current_user",
    "current_role",
    "current_catalog",
    "current_schema",
}
_TIMES = {"CurrentDate", "CurrentTime", "CurrentTimestamp"}


def _characters(node: exp.Expr) -> exp.Expr | None:
    """Return the characters that a function compares with each one of a text.

    With a megabyte of each, that takes 20 minutes, in which neither engine can be interrupted.
    """
    if isinstance(node, exp.Trim):
        return node.args.get("expression")
    if isinstance(node, exp.Translate):
        return node.args.get("from_")
    return None


def _is_short(characters: exp.Expr) -> bool:
    is_text = (
        isinstance(characters, exp.Literal) and len(characters.name) <= MOST_CHARACTERS
    )
    return is_text or (
        isinstance(characters, exp.Chr)
        and all(isinstance(n, exp.Literal) for n in characters.expressions)
    )


def _check_expansion(tree: exp.Query) -> None:
    """Count the tables of a query once every name of its WITHs is written out.

    Thirty names, each of which reads the one before twice, are a thousand million: SQLite plans them all, and cannot be
    interrupted while it plans.
    """
    ctes = [
        (each.alias.lower(), list(each.find_all(exp.Table)))
        for each in tree.find_all(exp.CTE)
    ]
    sizes: dict[str, int] = {}
    # a name may be counted before what it reads; after so many rounds all are counted
    for _ in ctes:
        before = dict(sizes)
        for name, read in ctes:
            size = 1 + sum(
                sizes.get(table.name.lower(), 1)
                for table in read
                if table.name.lower() != name
            )
            sizes[name] = max(sizes.get(name, 1), size)
            if size > MOST_TABLES:
                raise _refusal(
                    "Its WITHs read one another too often.",
                    "Read each of them once or twice only.",
                )
        if sizes == before:
            return


def _system(table: exp.Table) -> str:
    """Return the name of a table that is the engine's own, or empty."""
    parts = [
        part.name.lower() for part in table.parts if isinstance(part, exp.Identifier)
    ]
    own = ("pg_", "sqlite_", "pragma_", "information_schema")
    return next((part[:60] for part in parts if part.startswith(own)), "")


def _word(node: exp.Expr) -> str:
    return {"Into": "SELECT INTO", "Lock": "FOR UPDATE"}.get(
        type(node).__name__, type(node).__name__.upper()
    )


def _refusal(why: str, suggestion: str) -> ToolError:
    return ToolError(
        "QUERY_REFUSED", f"The query was not run. {why}", suggestion=suggestion
    )
