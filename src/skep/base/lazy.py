"""A property that is computed once for an instance, without a lock."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_Value_co = TypeVar("_Value_co", covariant=True)


class lazy_property(Generic[_Value_co]):  # noqa: N801  # used as `property` is
    """What `functools.cached_property` is from Python 3.12 on.

    Up to Python 3.11 that one holds a lock of the class while it computes the value of any instance. A thread that
    waits for something inside the computation then stops each thread that needs the value of another instance. Two
    searches waited for each other in this way: one for the lock, the other for its place in the queue of long searches.
    Here two threads may compute the value of one instance at the same time: it has to be the same value.
    """

    def __init__(self, compute: Callable[[Any], _Value_co]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value_co: ...

    def __get__(self, instance: object | None, owner: type) -> Self | _Value_co:
        """Python calls this until the value is among the instance's own attributes."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
