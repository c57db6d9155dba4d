"""What `values.dataclass` makes behaves as what the standard library makes: each test is run on both."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Hashable
from dataclasses import KW_ONLY, FrozenInstanceError, field, replace
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, get_type_hints

import pytest
from pydantic import TypeAdapter

from handrail import values
from handrail.errors import Failure

T = TypeVar("T")


def kinds(dataclass):
    """Return the classes that the tests are about, made by this decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """Where."""

        x: int
        y: int = 0

    @dataclass(frozen=True, slots=True)
    class Place(Point):
        """Where, by name."""

        name: str = ""

    @dataclass(frozen=True, slots=True)
    class Parcel:
        """With everything that a field can be."""

        name: str
        lines: list[int] = field(default_factory=list)
        seen: str = field(default="", compare=False, repr=False)
        length: int = field(init=False, repr=False)
        kept: dict[str, int] = field(default_factory=dict, init=False, hash=False)
        counted: int = field(default=3, init=False)
        _: KW_ONLY
        weight: float
        limit: float = 1.5

        def __post_init__(self):
            object.__setattr__(self, "length", len(self.name))

    @dataclass(slots=True)
    class Tally:
        """What is counted; not frozen."""

        of: str
        seen: list[int] = field(default_factory=list)
        weight: float = field(default=0.0, compare=False)

    @dataclass(slots=True)
    class Named:
        """Not frozen, and with a hash of its own."""

        name: str

        def __hash__(self):
            return 7

    @dataclass(frozen=True, slots=True)
    class Alone:
        """One field, whose value need not equal itself."""

        value: Any

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Nothing to say."""

    @dataclass(frozen=True, slots=True)
    class Box(Generic[T]):
        """Of something, with words of its own."""

        inside: T

        def __repr__(self):
            return "a box"

        def __eq__(self, other):
            return isinstance(other, type(self))

    return SimpleNamespace(
        Point=Point, Place=Place, Parcel=Parcel, Alone=Alone, Empty=Empty, Box=Box, Tally=Tally, Named=Named
    )


STANDARD, OURS = kinds(dataclasses.dataclass), kinds(values.dataclass)


@pytest.fixture(params=[STANDARD, OURS], ids=["standard", "ours"])
def kind(request):
    return request.param


def test_all_classes_share_their_methods_but_for_init():
    for name in ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"):
        ours, others = (inspect.unwrap(getattr(each, name)) for each in (OURS.Point, OURS.Parcel))
        assert ours.__code__ is others.__code__


def test_the_init_of_a_class_is_compiled_once_and_when_the_first_value_is_made():
    point = kinds(values.dataclass).Point
    assert not inspect.isfunction(vars(point)["__init__"])
    assert point(1) == point(x=1)
    init = vars(point)["__init__"]
    assert inspect.isfunction(init)
    assert point(2).x == 2
    assert vars(point)["__init__"] is init


@pytest.mark.parametrize("name", vars(STANDARD))
def test_a_class_is_described_as_the_standard_one(name):
    standard, ours = getattr(STANDARD, name), getattr(OURS, name)
    assert inspect.signature(ours).replace(parameters=()) == inspect.signature(standard).replace(parameters=())
    assert [(each.name, each.kind, each.annotation) for each in inspect.signature(ours).parameters.values()] == [
        (each.name, each.kind, each.annotation) for each in inspect.signature(standard).parameters.values()
    ]
    assert get_type_hints(ours.__init__) == get_type_hints(standard.__init__)
    assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(standard)]
    assert (ours.__match_args__, ours.__slots__) == (standard.__match_args__, standard.__slots__)
    assert ours.__init__.__qualname__ == standard.__init__.__qualname__
    assert str(ours.__dataclass_params__.frozen) == str(standard.__dataclass_params__.frozen)


def test_values_are_made_by_place_by_name_and_by_default(kind):
    assert (kind.Point(1), kind.Point(x=1, y=0)) == (kind.Point(1, 0), kind.Point(1))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        kind.Point()


def test_fields_get_their_defaults_and_what_post_init_sets(kind):
    parcel = kind.Parcel("abc", weight=2.0)
    assert (parcel.lines, parcel.seen, parcel.length, parcel.kept, parcel.counted) == ([], "", 3, {}, 3)
    assert (parcel.weight, parcel.limit) == (2.0, 1.5)
    assert parcel.lines is not kind.Parcel("abc", weight=2.0).lines
    with pytest.raises(TypeError, match="positional arguments"):
        kind.Parcel("abc", [], "", 2.0)


def test_values_of_one_class_are_equal_by_what_is_compared(kind):
    assert kind.Point(1, 2) == kind.Point(1, 2) != kind.Point(2, 1)
    assert kind.Parcel("a", seen="today", weight=1) == kind.Parcel("a", seen="never", weight=1)
    assert kind.Empty() == kind.Empty() != kind.Point(1)
    nan = float("nan")
    assert kind.Alone(nan) == kind.Alone(nan)  # as tuples are: the very same is equal


def test_what_is_equal_has_one_hash(kind):
    assert hash(kind.Point(1, 2)) == hash(kind.Point(1, 2)) == hash((1, 2))
    assert hash(kind.Alone(1)) == hash((1,))
    assert len({kind.Empty(), kind.Empty()}) == 1
    assert isinstance(kind.Box(1), Hashable)
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind.Alone([]))


def test_a_value_shows_what_it_is_made_of(kind):
    assert repr(kind.Point(1)) == "kinds.<locals>.Point(x=1, y=0)"
    assert repr(kind.Parcel("a", weight=1)).endswith(
        "Parcel(name='a', lines=[], kept={}, counted=3, weight=1, limit=1.5)"
    )
    assert repr(kind.Empty()).endswith("Empty()")


def test_a_value_that_holds_itself_can_be_shown(kind):
    held = []
    held.append(kind.Alone(held))
    assert repr(held[0]).endswith("Alone(value=[...])")


def test_a_value_cannot_be_changed(kind):
    point = kind.Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x


# Of ours alone: Python 3.11 makes a class with slots anew, the check still asks for the class before that, and what is
# no field ends in a TypeError.
def test_what_is_no_field_is_refused_in_a_value_and_free_in_a_plain_class_that_inherits():
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'z'"):
        OURS.Point(1).z = 2

    class Named(OURS.Point):
        pass

    named = Named(1)
    named.name = "here"
    del named.name
    with pytest.raises(FrozenInstanceError):
        named.x = 2
    assert named != OURS.Point(1)


def test_a_frozen_dataclass_may_inherit_and_no_other(kind):
    assert kind.Place(1, 2, "home") == replace(kind.Place(1, 2), name="home") != kind.Place(1, 2)

    @dataclasses.dataclass(frozen=True)
    class Town(kind.Place):
        people: int = 0

    assert repr(Town(1, people=2)).endswith("Town(x=1, y=0, name='', people=2)")
    with pytest.raises(TypeError, match="non-frozen"):

        @dataclasses.dataclass
        class Loose(kind.Point):
            pass


def test_a_value_that_is_not_frozen_is_changed_compared_and_copied_and_has_no_hash(kind):
    tally = kind.Tally("a")
    assert tally == kind.Tally("a", weight=1.0) != kind.Tally("b")
    tally.of, tally.weight = "b", 2.0
    tally.seen.append(1)
    assert repr(tally).endswith("Tally(of='b', seen=[1], weight=2.0)")
    assert copy.deepcopy(tally) == replace(tally) == kind.Tally("b", [1])
    with pytest.raises(AttributeError):
        tally.other = 1
    with pytest.raises(TypeError, match="unhashable type: 'Tally'"):
        hash(tally)
    assert hash(kind.Named("a")) == 7


def test_a_class_keeps_the_methods_that_it_writes_itself(kind):
    assert repr(kind.Box(1)) == "a box"
    assert kind.Box(1) == kind.Box(2)
    assert hash(kind.Box(1)) == hash((1,))


def test_values_are_copied_replaced_and_taken_apart(kind):
    parcel = kind.Parcel("abc", [1], weight=2.0)
    for made in (copy.copy(parcel), copy.deepcopy(parcel), replace(parcel, seen="today")):
        assert made == parcel
        assert made is not parcel
    assert copy.deepcopy(parcel).lines is not parcel.lines
    assert dataclasses.asdict(kind.Point(1)) == {"x": 1, "y": 0}
    match kind.Point(1, 2):
        case kind.Point(x, y):
            assert (x, y) == (1, 2)


def test_a_value_goes_through_pickle():
    failure = Failure("TIMEOUT", "It took too long.")
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_pydantic_reads_and_writes_a_value(kind):
    adapter = TypeAdapter(kind.Point)
    assert adapter.validate_python({"x": "1"}) == kind.Point(1)
    assert adapter.dump_json(kind.Point(1)) == b'{"x":1,"y":0}'


@pytest.mark.parametrize(
    "options", [{}, {"frozen": True}, {"slots": True, "repr": True}, {"frozen": True, "slots": True, "eq": False}]
)
def test_any_other_kind_is_left_to_the_standard_library(options):
    class Point:
        x: int

    made = values.dataclass(**options)(Point)
    assert made.__init__.__code__.co_filename == "<string>"
    assert made.__repr__.__wrapped__.__code__.co_filename == "<string>"
