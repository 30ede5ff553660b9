"""RandomApply, RandomChoice and RandomOrder, which do other transforms by chance: for transforms
that are objects of torchvision's, and for calls in a script.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from . import errors
from ._pipeline_schema import OPS
from .pipeline import Op
from .torchvision_transforms import REQUIRED, NoCounterpart, Translator

# Their parameters, in the constructors' order.
BY_CHANCE: dict[str, dict[str, Any]] = {
    "RandomApply": {"transforms": REQUIRED, "p": 0.5},
    "RandomChoice": {"transforms": REQUIRED, "p": None},
    "RandomOrder": {"transforms": REQUIRED},
}


class ByChance(ABC):
    """Translates what does others by chance. Whoever derives from it says what a transform is.

    Parameters
    ----------
    translator : Translator
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    @abstractmethod
    def _steps(self, transform: Any, place: str) -> Iterable[tuple[str, Any]]:
        """Yield transforms with their places below `place`, those of containers in their order."""

    @abstractmethod
    def _translate(self, step: Any) -> None:
        """Translate one transform; raise NoCounterpart."""

    @abstractmethod
    def _name(self, step: Any) -> str:
        """Return what a transform is called."""

    def translate(self, kind: str, transforms: Sequence[Any], values: Mapping[str, Any]) -> None:
        """Translate a class of `BY_CHANCE`; raise NoCounterpart.

        Parameters
        ----------
        kind : str
        transforms : sequence
            Those that it does.
        values : mapping
            `p`, of a class that has it.
        """
        try:
            if kind == "RandomApply":
                self._apply(transforms, values["p"])
            elif kind == "RandomChoice":
                self._choice(transforms, values["p"] or ())
            else:
                self._order(transforms)
        except errors.InvalidArgument as error:
            raise NoCounterpart(str(error)) from None

    def _inner(self, transforms: Sequence[Any], place: str = "") -> list[Op]:
        """Return the ops of transforms; `place` is that of the one among alternatives."""

        def work() -> None:
            for number, transform in enumerate(transforms, 1):
                for position, step in self._steps(transform, place or str(number)):
                    try:
                        self._translate(step)
                    except NoCounterpart as reason:
                        text = f"its transform {position}, {self._name(step)}: {reason}"
                        raise NoCounterpart(text, reason.nearest) from None

        return self._translator.apart(work)

    def _apply(self, transforms: Sequence[Any], p: float) -> None:
        """Emit the op `apply`; of one op that has a `p` of its own, that op."""
        made = self._inner(transforms)
        if not made:
            return
        own = OPS[made[0].name]["properties"].get("p", {})
        if len(made) == 1 and own.get("default") == 1.0 and "p" not in made[0].params:
            self._translator.ops.append(Op.make(made[0].name, {**made[0].params, "p": p}))
        else:
            self._translator.ops.append(self._translator.combined("apply", made, p=p))

    def _alternatives(self, transforms: Sequence[Any]) -> list[Optional[Op]]:
        """Return an op for each of the transforms; None does nothing."""
        alternatives: list[Optional[Op]] = []
        for number, transform in enumerate(transforms, 1):
            made = self._inner([transform], str(number))
            if len(made) > 1:
                made = [self._translator.combined("apply", made, p=1.0)]
            alternatives.append(made[0] if made else None)
        return alternatives

    def _choice(self, transforms: Sequence[Any], p: Sequence[float]) -> None:
        weights = () if len(set(p)) == 1 else tuple(float(weight) for weight in p)
        made = []
        for number, op in enumerate(self._alternatives(transforms), 1):
            if op is None:
                raise NoCounterpart(f"its transform {number} does nothing here: give the op a `p`")
            made.append(op)
        self._translator.ops.append(self._translator.combined("one_of", made, weights=weights))

    def _order(self, transforms: Sequence[Any]) -> None:
        made = [op for op in self._alternatives(transforms) if op is not None]
        if len(made) < 2:
            self._translator.ops.extend(made)
        else:
            op = self._translator.combined("some_of", made, n=len(made), order="random")
            self._translator.ops.append(op)
