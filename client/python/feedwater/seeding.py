"""What is random in a user's own code depends on the daemon's seeds, and on nothing else.

Code draws from generators that it does not name: those of `random`, of NumPy, and of torch. To seed
the first two costs 6 us, three times as much as all else that is done for a small sample, and most
datasets draw from none. So they are seeded from the moment on when somebody draws from them: that
is seen in their memory, and what was drawn then is made once more.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import secrets
import sys
import types
from _random import Random as _Twister
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any, Optional

import numpy as np

_32_BITS, _63_BITS = (1 << 32) - 1, (1 << 63) - 1


def _seed_random(seed: int) -> None:
    twister: Any = random._inst
    _Twister.seed(twister, seed)
    twister.gauss_next = None


def _seed_numpy(seed: int) -> None:
    with contextlib.suppress(TypeError):  # the program has put another kind in its place
        np.random.seed(seed >> 32 & _32_BITS)


def _seed_torch(torch: Any, seed: int) -> None:
    # NumPy's generator is the same: from the same 32 bits it would draw the same words.
    torch.default_generator.manual_seed(seed & _63_BITS)


class Importing:
    """Calls what is to be done where user code imports a module in the middle of a sample: a finder
    of modules, which lets the others find.

    Attributes
    ----------
    then : dict
        By the module's name: called with the module.
    """

    def __init__(self) -> None:
        self.then: dict[str, Callable[[Any], None]] = {}

    def call(self, name: str, then: Callable[[Any], None]) -> None:
        """Call it when that is imported, and no earlier one; at once where it has been."""
        if name in sys.modules:
            self.then.pop(name, None)
            then(sys.modules[name])
            return
        self.then[name] = then
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Let the others find it; None: it is none of these."""
        if name not in self.then:
            return None
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        specs = (one.find_spec(name, path, target) for one in others)
        spec = next(filter(None, specs), None)
        loader: Any = None if spec is None else spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                then = self.then.pop(name, None)
                if then is not None:
                    then(module)

            loader.exec_module = exec_module
        return spec


importing = Importing()


def _seed_torch_in_time(seed: int) -> None:
    importing.call("torch", lambda torch: _seed_torch(torch, seed))


def _look_at_random() -> Optional[ctypes.c_uint64]:
    """Return the memory that changes with each draw; None where it is not where it should be.

    It is the index into the state, and the state's first word, of CPython's ``RandomObject``.
    """
    if sys.implementation.name != "cpython":
        return None
    memory = ctypes.c_uint64.from_address(id(random._inst) + object.__basicsize__)
    return memory if _changes(memory, _seed_random, random.random) else None


def _look_at_numpy() -> Optional[ctypes.c_uint64]:
    """Return the same of NumPy's generator: the last word of the state, and the index."""
    try:
        address = np.random.mtrand._rand._bit_generator.ctypes.state_address
        memory = ctypes.c_uint64.from_address(address + 623 * 4)
    except AttributeError:
        return None
    return memory if _changes(memory, _seed_numpy, np.random.random_sample) else None


def _changes(
    memory: ctypes.c_uint64, seed: Callable[[int], None], draw: Callable[[], float]
) -> bool:
    for number in range(2):
        seed(number)
        before = memory.value
        draw()
        after = memory.value
        seed(number)
        if not before == memory.value != after:
            return False
    return True


class _Watched:
    """A generator that is seeded once somebody has drawn from it."""

    def __init__(
        self, seed: Callable[[int], None], look: Callable[[], Optional[ctypes.c_uint64]]
    ) -> None:
        self.seed = seed
        self.memory = look()
        seed(0)
        self.is_used = self.memory is None
        self.at_rest = 0 if self.memory is None else self.memory.value

    def was_drawn_from(self) -> bool:
        assert self.memory is not None
        return self.memory.value != self.at_rest


class Seeding:
    """Seeds the common generators of one process.

    Parameters
    ----------
    at_once : bool
        All of them from the beginning: for what cannot be made once more.
    """

    def __init__(self, at_once: bool = False) -> None:
        watched = [_Watched(_seed_random, _look_at_random), _Watched(_seed_numpy, _look_at_numpy)]
        self._used = [one.seed for one in watched if at_once or one.is_used]
        self._unused = [one for one in watched if one.seed not in self._used]

    def seed(self, first: int, second: int) -> None:
        """Seed what is used. torch's is seeded in any case, since others ask it for its seed."""
        mixed = first ^ second
        for seed in self._used:
            seed(mixed)
        _seed_torch_in_time(mixed)

    def is_complete(self) -> bool:
        """Tell whether all that was drawn from since `seed` had been seeded; if not, it will be."""
        drawn = [one for one in self._unused if one.was_drawn_from()]
        if not drawn:
            return True
        self._used += [one.seed for one in drawn]
        self._unused = [one for one in self._unused if one not in drawn]
        return False


class Draws:
    """A generator that begins anew for each call of an op: the same as
    ``numpy.random.Generator(numpy.random.Philox(key=seed))``, without making one each time.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=[0, 0])
        self._fresh = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, first: int, second: int) -> np.random.Generator:
        """Return the generator of these seeds."""
        self._fresh["state"]["key"] = np.array([first, second], dtype=np.uint64)
        self._bits.state = self._fresh
        return self._generator


# --- all of them at once --------------------------------------------------------------------------


def seed_all(seed: int) -> None:
    """Seed the common generators."""
    _seed_random(seed)
    _seed_numpy(seed)
    _seed_torch_in_time(seed)


def seed_apart() -> None:
    """Seed the common generators with what no other process has: a fork begins where its parent
    stands. `random` does that itself.
    """
    _seed_numpy(secrets.randbits(64))
    if "torch" in sys.modules:  # one that is imported later has a seed of its own
        sys.modules["torch"].default_generator.seed()


def captured() -> tuple[Any, Any, Any]:
    """Return where the common generators stand."""
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        np.random.get_state(),
        None if torch is None else torch.default_generator.get_state(),
    )


def restore(states: tuple[Any, Any, Any], seed: int) -> None:
    """Set the common generators to where they stood, since `seed`."""
    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is None:
        _seed_torch_in_time(seed)
    else:
        sys.modules["torch"].default_generator.set_state(states[2])
