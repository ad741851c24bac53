"""Attributes that are computed when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")


class cached_attribute(Generic[_T]):  # noqa: N801, as property
    """What a method computes, kept in the object's dictionary as an attribute of the method's name.

    It has no lock: `functools.cached_property` has, up to Python 3.11, one for all objects of a class, and a process
    forked while a thread holds it waits for ever. Two threads that are first may both compute; both get one value.

    Examples
    --------
    >>> class Circle:
    ...     @cached_attribute
    ...     def area(self):
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (3.14, 3.14)
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_attribute[_T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_attribute[_T] | _T:
        # Without __set__, the dictionary comes first: this is run once.
        if instance is None:
            return self
        value: _T = vars(instance).setdefault(self._name, self._compute(instance))
        return value
