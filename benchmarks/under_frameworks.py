"""Conversations of other frameworks, killed at random: `python -m benchmarks.under_frameworks --kills 200`.

Two processes carry conversations of LangGraph (`ainvoke` and `invoke`), pydantic-ai and the OpenAI Agents SDK on one
store of handrail; each framework keeps its conversations in its own way. The processes are killed as in `chaos`, and
new ones go on with what the framework has kept. Effects are counted by the far side, outside of every process.

A conversation reads something and writes three times, once for each replay class. In the end what its model has read of
each write is compared with how often the write took effect.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep

from tests.journeys.worlds import CLASSES, Far, declaration

from benchmarks.chaos import kill_until_done, titles_of
from benchmarks.verdicts import argument_parser, print_broken
from handrail.testing.crashes import Child, opener
from handrail_frameworks.bench.play import Case, load_player
from handrail_frameworks.bench.scenarios import Scenario, ScriptedTurn, Step

TARGETS = {
    "langgraph": "langchain",
    "langgraph-sync": "langchain",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "openai_agents",
}
"""Each target with its adapter."""
EFFECT_TAKES_S = 0.01
"""How long the far side takes before an effect, and again before it answers."""
CONVERSATIONS_OF_A_BATCH = 24
COUNTS = (
    "conversations",
    "processes took over",
    "writes",
    "effects",
    "asked twice by key",
    "verified",
    "in doubt",
    "in doubt, and happened",
)


class SlowFar(Far):
    """A far side that takes a while, so that kills fall there, too."""

    def add(self, name: str, line: str) -> None:
        """See `Far.add`."""
        pause = EFFECT_TAKES_S if name == "effects" else 0.0
        sleep(pause)
        super().add(name, line)
        sleep(pause)


def scenario_of(far: Far, conversation: str) -> Scenario:
    """Return the tools, and what the model of a conversation says."""

    def look() -> str:
        """Look around."""
        return "fine"

    calls = [
        (f"call_{replay}", f"open_{replay}", json.dumps({"title": title}))
        for replay, title in zip(CLASSES, titles_of(conversation), strict=True)
    ]
    script = [
        ScriptedTurn(calls=[("look_1", "look", "{}"), calls[0]]),
        *(ScriptedTurn(calls=[call]) for call in calls[1:]),
        ScriptedTurn(text="Three tickets.", finish="stop"),
    ]
    tools = {look: {"effect": "read"}, **dict(declaration(far, r) for r in CLASSES)}
    return Scenario("", tools, script, judge=None)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- in the processes that die


def carry(
    store: str, folder: Path, conversations: Sequence[str], begun: Callable[[], None]
) -> None:
    """Begin or go on with these conversations one after the other until all have ended, or until we are killed."""
    begun()
    far = SlowFar(folder)
    for conversation in conversations:
        target = conversation.partition(":")[0]
        own = folder / conversation
        is_begun = own.exists()
        own.mkdir(exist_ok=True)
        if is_begun:
            far.add("taken over", conversation)
        scenario = scenario_of(far, conversation)
        step = Step(resumes=is_begun)
        case = Case(scenario, "handrail", step, own, run=conversation, store=store)
        talk = load_player(target)(case)
        assert not talk.error, (conversation, talk.error)
        far.add("texts", json.dumps([conversation, list(talk.texts)]))
        far.add("ended", conversation)


# ---------------------------------------------------------------------- judging


@dataclass
class Verdict:
    """The outcome. Every list is empty unless a promise was broken."""

    kills: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lies: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def hit(self) -> bool:
        """Whether a kill fell between a claim and its settlement; otherwise nothing was proved."""
        names = ("asked twice by key", "verified", "in doubt")
        return any(self.counts[name] for name in names)

    @property
    def broken(self) -> dict[str, list[str]]:
        """What broke each promise."""
        return {
            "repeated": self.repeated,
            "lost": self.lost,
            "lies": self.lies,
            "unfinished": self.unfinished,
        }

    def judge(self, far: Far, conversations: Sequence[str]) -> None:
        """Compare what the models have read with what has happened."""
        read = dict(json.loads(line) for line in far.lines("texts"))
        happened = Counter(line.split()[-1] for line in far.lines("effects"))
        asked = Counter(line.split()[-1] for line in far.lines("asked"))
        self.counts["processes took over"] += len(far.lines("taken over"))
        for conversation in conversations:
            self.counts["conversations"] += 1
            if conversation not in read:
                self.unfinished.append(conversation)
                continue
            texts = read[conversation]
            if len(texts) != 1 + len(CLASSES):
                self.lost.append(f"{conversation}: the model has read {texts}")
            for replay, title in zip(CLASSES, titles_of(conversation), strict=True):
                self.weigh(texts, replay, title, happened[title])
                self.counts["asked twice by key"] += (
                    replay == "key" and asked[title] > 1
                )

    def weigh(
        self, texts: Sequence[str], replay: str, title: str, happened: int
    ) -> None:
        """Judge one write by what its model has read of it."""
        self.counts["writes"] += 1
        self.counts["effects"] += happened
        if happened > 1:
            self.repeated.append(f"{title}: {happened} times")
        told = [text for text in texts if f"opened {title}" in text]
        if told:
            self.counts["verified"] += any("verified" in text for text in told)
            if not happened:
                self.lies.append(f"{title}: told as done, and nothing happened")
        elif replay == "none" and any("IN_DOUBT" in text for text in texts):
            self.counts["in doubt"] += 1
            self.counts["in doubt, and happened"] += happened
        else:
            self.lost.append(f"{title}: {happened} effects, and its model read {texts}")


def kill_conversations(
    kills: int,
    *,
    store: str,
    folder: Path,
    seconds: float,
    seed: int,
    targets: Sequence[str] = tuple(TARGETS),
    conversations: int = CONVERSATIONS_OF_A_BATCH,
) -> Verdict:
    """Carry batches of conversations through kills until there were so many, or the time is over."""
    for target in targets:
        # imported once, for all the processes that are forked
        load_player(target)
        import_module(f"handrail_frameworks.{TARGETS[target]}")
    import_module("handrail.sync")
    opener(store)
    verdict = Verdict()
    dice = random.Random(seed)
    until = monotonic() + seconds
    batch = 0
    while verdict.kills < kills and not any(verdict.broken.values()):
        far = Far(folder / f"batch-{batch}")
        names = [
            f"{targets[number % len(targets)]}:{seed:x}-{batch}-{number}"
            for number in range(conversations)
        ]

        def begin(left: list[str], far: Far = far) -> Child:
            return Child(partial(carry, store, far.folder, left))

        verdict.kills += kill_until_done(begin, far, names, until, dice)
        verdict.judge(far, names)
        batch += 1
    return verdict


def main() -> int:
    """Print the counts; the exit code is 1 when a promise was broken, 3 when nothing was proved."""
    parser = argument_parser(
        "under_frameworks", __doc__.splitlines()[0], seconds=3600.0
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--only", choices=tuple(TARGETS), action="append")
    given = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="handrail-frameworks-") as folder:
        store = given.store or f"sqlite:///{folder}/handrail.db"
        verdict = kill_conversations(
            given.kills,
            store=store,
            folder=Path(folder),
            seconds=given.seconds,
            seed=given.seed,
            targets=given.only or tuple(TARGETS),
        )
    took = f"{monotonic() - began:.0f} s, {store.partition(':')[0]}"
    print(f"seed {given.seed}: {verdict.kills} kills, {took}")
    for name in COUNTS:
        print(f"  {name:24}{verdict.counts[name]:6}")
    print_broken(verdict.broken, width=24)
    if any(verdict.broken.values()):
        return 1
    return 0 if verdict.hit else 3


if __name__ == "__main__":
    sys.exit(main())
