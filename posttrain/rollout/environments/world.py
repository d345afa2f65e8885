"""A made-up world: people, towns and workshops, as pages of an archive, with questions that need several pages.

Nothing of it is in any model's memory, so that an answer is found by reading or not at all. The same numbers and seed
give the same world. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_FIRST = (
    "Ada Bero Cilla Doran Elvi Fenn Gisa Horo Ilka Joren Kasmi Lio Mirel Noam Orsa Pell Quin Runa Sivo Tamar Ulf Vesna"
)
_LAST = (
    "Aldring Brenk Corvane Dask Emmerlo Fothe Grisk Halvorn Istran Jepp Kordula Lunt Merrow Nask Oppel Prast Quell Rund"
)
_HEAD, _TAIL = (
    "Alb Bram Cor Dun Eld Fal Gor Hest Ism Kel Lor Mar Nor Ost Pel",
    "acker burg daal ford gate haven holm mere wick",
)
_CRAFTS = "clockmaker glassblower bookbinder cartographer lutenist dyer astronomer apothecary bellfounder weaver"
_GOODS = (
    "brass compasses|blue glass|star charts|oak barrels|wool carpets|silver bells|paper lanterns|reed flutes|salt lamps"
)


@dataclass(frozen=True)
class Page:
    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Asked:
    """`hops` is how many pages must be read."""

    question: str
    answer: str
    hops: int


@dataclass(frozen=True)
class Person:
    name: str
    craft: str
    born: int
    town: int
    teacher: int | None
    workshop: int


@dataclass(frozen=True)
class World:
    people: list[Person]
    towns: list[tuple[str, int, str]]  # name, year of its charter, river
    workshops: list[tuple[str, str, int]]  # name, what it makes, town


def make(people: int, seed: int) -> World:
    draw = random.Random(f"world/{seed}/{people}")
    names = [f"{first} {last}" for first in _FIRST.split() for last in _LAST.split()]
    places = [head + tail for head in _HEAD.split() for tail in _TAIL.split()]
    draw.shuffle(names)
    draw.shuffle(places)
    names += [f"{name} the Younger" for name in names]
    count = max(3, min(len(places) // 2, people // 4))
    rivers = [f"the {place}" for place in places[count:]]
    towns = [(places[i], draw.randint(1050, 1400), draw.choice(rivers)) for i in range(count)]
    goods, makers = _GOODS.split("|"), max(3, people // 5)
    workshops = [
        (f"The {draw.choice(['Amber', 'Copper', 'Green', 'Grey', 'Ivory', 'Red', 'White'])} "
         f"{draw.choice(['Anchor', 'Fox', 'Heron', 'Key', 'Lantern', 'Oak', 'Wheel'])} of {towns[i % count][0]}",
         draw.choice(goods), i % count)
        for i in range(makers)
    ]  # fmt: skip
    workshops = list({workshop[0]: workshop for workshop in workshops}.values())  # no name twice
    made: list[Person] = []
    for index in range(min(people, len(names))):
        teacher = draw.randrange(index) if index else None
        made.append(
            Person(names[index], draw.choice(_CRAFTS.split()), 1500 + index + draw.randint(0, 3),
                   draw.randrange(count), teacher, draw.randrange(len(workshops)))
        )  # fmt: skip
    return World(made, towns, workshops)


def pages(world: World) -> list[Page]:
    """One for each person, town and workshop; each fact on one page only."""
    found = []
    for index, person in enumerate(world.people):
        taught = f" {person.name} learned the craft from {world.people[person.teacher].name}." if (
            person.teacher is not None
        ) else ""  # fmt: skip
        workshop = world.workshops[person.workshop][0]
        found.append(Page(
            f"person-{index}", person.name,
            f"{person.name} was a {person.craft}, born in {person.born}, who lived in {world.towns[person.town][0]}."
            f"{taught} Most of the working years of {person.name} were spent at {workshop}.",
        ))  # fmt: skip
    for index, (name, year, river) in enumerate(world.towns):
        text = f"{name} is a town on {river}. It was given its charter in {year}."
        found.append(Page(f"town-{index}", name, text))
    for index, (name, goods, town) in enumerate(world.workshops):
        text = f"{name} is a workshop. It stands in {world.towns[town][0]} and is known for its {goods}."
        found.append(Page(f"workshop-{index}", name, text))
    return found


def questions(world: World, count: int, seed: int) -> list[Asked]:
    """`count` of them, none twice, as far as there are so many."""
    draw = random.Random(f"questions/{seed}")
    kinds: list[Callable[[World, Person], Asked | None]] = [_teachers_town, _charter, _goods, _river, _teachers_birth]
    every = [(kind, person) for kind in kinds for person in world.people]
    draw.shuffle(every)
    found: dict[str, Asked] = {}
    for kind, person in every:
        asked = kind(world, person)
        if asked is not None and len(found) < count:
            found.setdefault(asked.question, asked)
    return list(found.values())


def _teacher(world: World, person: Person) -> Person | None:
    return None if person.teacher is None else world.people[person.teacher]


def _teachers_town(world: World, person: Person) -> Asked | None:
    teacher = _teacher(world, person)
    if teacher is None:
        return None
    return Asked(f"In which town did the teacher of {person.name} live?", world.towns[teacher.town][0], 2)


def _charter(world: World, person: Person) -> Asked | None:
    year = world.towns[person.town][1]
    return Asked(f"In which year was the town where {person.name} lived given its charter?", str(year), 2)


def _goods(world: World, person: Person) -> Asked | None:
    teacher = _teacher(world, person)
    if teacher is None:
        return None
    goods = world.workshops[teacher.workshop][1]
    return Asked(f"For what is the workshop known at which the teacher of {person.name} worked?", goods, 3)


def _river(world: World, person: Person) -> Asked | None:
    town = world.workshops[person.workshop][2]
    asked = f"On which river lies the town in which the workshop of {person.name} stands?"
    return Asked(asked, world.towns[town][2], 3)


def _teachers_birth(world: World, person: Person) -> Asked | None:
    teacher = _teacher(world, person)
    grand = _teacher(world, teacher) if teacher is not None else None
    if grand is None:
        return None
    return Asked(f"In which year was the teacher of the teacher of {person.name} born?", str(grand.born), 3)
