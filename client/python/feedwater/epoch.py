"""`Epoch`: the iterator that ``iter(loader)`` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import trainers

if TYPE_CHECKING:
    from .loader import Loader


class Epoch(Iterator):
    """One run through an epoch."""

    __slots__ = ("_iteration", "_loader", "_over")

    def __init__(self, loader: Loader, iteration: int) -> None:
        self._loader = loader
        self._iteration = iteration
        self._over = False

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            return self._loader._next(self._iteration)
        except StopIteration:
            self._over = True
            trainers.end(self._loader)
            raise

    # At the interpreter's end the names of modules may be gone.
    def __del__(self, _end: Callable[[Any], None] = trainers.end) -> None:
        if not self._over and self._loader._iteration == self._iteration:
            _end(self._loader)  # left by `break`
