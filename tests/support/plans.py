"""Plans as tests read them: what one emits for a problem, with the names of shapes."""

from typing import Any, NamedTuple

from cupar._kernels.family import Properties


class Plan(NamedTuple):
    """What is launched: a shape by its name, "" for none; of several, tuples of shapes and numbers."""

    shape: Any
    nbytes: int
    numbers: tuple = ()


def planned(family, properties, occupancy):
    """Return what gives the plan of a problem, for a build and device with these properties."""
    plan, facts = family.planner(Properties(properties, occupancy))

    def find(problem):
        emitted = []
        nbytes = plan(facts, problem, lambda *each: emitted.append(each))
        shapes = tuple(family.names[shape] for shape, _ in emitted)
        numbers = tuple(numbers for _, numbers in emitted)
        if len(emitted) > 1:
            return Plan(shapes, nbytes, numbers)
        return Plan(*(shapes or ("",)), nbytes, *numbers)

    return find
