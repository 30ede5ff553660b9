"""`Ordinal`: the number of one of the things that all ranks make in the same order.

Ranks know what belongs together by it: the n-th loader of a pipeline at one rank is the n-th one at
another. What could not be made, or was refused, gives its number back, so that another attempt has
the same one; else this rank would count otherwise than the others from there on.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import ClassVar


class Ordinal:
    """A number that was taken: the smallest that is free in its series, from 1.

    Attributes
    ----------
    number : int
    """

    _next: ClassVar[dict[Hashable, Iterator[int]]] = {}  # of this process, by series
    _free: ClassVar[dict[Hashable, list[int]]] = {}  # those that were given back, as heaps

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free_there = free
        self._is_taken = True

    @classmethod
    def take(cls, *series: Hashable) -> Ordinal:
        """Take a number of a series. Threads may do so at the same time."""
        free = cls._free.setdefault(series, [])
        try:
            number = heapq.heappop(free)
        except IndexError:
            number = next(cls._next.setdefault(series, count(1)))
        return cls(number, free)

    def give_back(self) -> None:
        """Let the next one take this number. May be called again."""
        if self._is_taken:
            self._is_taken = False
            heapq.heappush(self._free_there, self.number)
