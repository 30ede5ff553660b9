"""A loader on its way to another process: what it was made with, and where it stands.

A stream belongs to one process, and to one rank. So a loader that comes out of a pickle is opened
where it is first used: by then its process knows its rank, be it a worker of Ray Train's, of
``torch.multiprocessing.spawn`` or of Lightning's.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from . import errors
from .pipeline_file import PipelineSource


class Recipe(NamedTuple):
    """How to open a loader again."""

    made_with: tuple[PipelineSource, dict[str, Any]]  # pipeline, and arguments by name
    state: dict[str, Any]


class Pickles:
    """What a loader does when it is pickled or copied."""

    _made_with: tuple[PipelineSource, dict[str, Any]]

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return _unopened, (type(self), Recipe(self._made_with, self.state_dict()))

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "a feedwater.Loader cannot be copied: the copy would be the same rank of the same job. "
            "Make another one, and load this one's state_dict() into it"
        )

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__copy__()


def _unopened(kind: type, recipe: Recipe) -> Any:
    """Return a loader that opens itself when it is first used."""
    loader: Any = object.__new__(type(kind.__name__, (kind,), {**_UNOPENED, "_kind": kind}))
    loader.__dict__["_recipe"] = recipe
    return loader


def _open(loader: Any) -> None:
    recipe = loader.__dict__.pop("_recipe")
    if recipe is None:
        loader.close()
        raise errors.FailedPrecondition("the loader is closed")
    unopened = type(loader)
    loader.__class__ = loader._kind
    try:
        source, arguments = recipe.made_with
        loader.__init__(source, **arguments)
        try:
            loader.load_state_dict(recipe.state)
        except BaseException:
            loader.close()
            raise
    except BaseException:  # it may be tried again
        loader.__class__ = unopened
        loader.__dict__.clear()
        loader.__dict__["_recipe"] = recipe
        raise


def _open_and_get(loader: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    _open(loader)
    return getattr(loader, name)


def _close(loader: Any) -> None:
    loader.__dict__["_recipe"] = None  # never to be opened


def _is_open(loader: Any) -> bool:
    return loader.__dict__["_recipe"] is not None


def _show(loader: Any) -> str:
    return "<feedwater.Loader, pickled: it is opened when it is first used>"


def _pickle_again(loader: Any, protocol: Any) -> Any:
    return _unopened, (loader._kind, loader.__dict__["_recipe"])


# What a loader does until it is opened. It opens when it is asked for what it has not.
_UNOPENED = {
    "__getattr__": _open_and_get,
    "__reduce_ex__": _pickle_again,
    "__repr__": _show,
    "close": _close,
    "is_open": property(_is_open),
}
