"""What a user's own processes get from the program: a dataset or a function, pickled once.

The pickle and the arrays in it lie in one file in memory. Each process maps it privately, so that a
large array in a dataset is in memory once, however many processes serve it, and a process that is
replaced gets the dataset as it was when serving began.
"""

from __future__ import annotations

import functools
import hashlib
import io
import mmap
import os
import pickle
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Optional

import numpy as np

from . import errors
from .descriptors import close, memory_kept
from .own_files import MAINS, changed_since, digest_of, files_of

_UNIT = 64
_LOOKED_AT = 1 << 20  # bytes at once for a digest; of a large array 16 times
_DEEPEST = 12
_CODE = (type, types.FunctionType, types.BuiltinFunctionType)
_AT_FIRST_USE = "in __getitem__ at first use"
_CURES = (
    (("lambda", "local object", "<locals>"), "write it as a function at the top of a module"),
    (("SSL", "socket", "thread", "lock", "generator", "module"), f"make it {_AT_FIRST_USE}"),
    (("TextIOWrapper", "Buffered", "h5py", "file"), f"open it {_AT_FIRST_USE}"),
)


class Pickled(NamedTuple):
    """Something pickled.

    Attributes
    ----------
    fd : int
        The file in memory. `descriptors.close` it.
    pieces : list of tuple of int
        Offset and size of the pickle, then of each array.
    modules : list of str
        Whose classes and functions it names.
    digest : str
        Of all of it, and of `files`: hexadecimal digits. Of a large array, of its size and of
        pieces.
    files : dict of str to bytes
        In which that code stands (`own_files`), each with its own digest.
    """

    fd: int
    pieces: list[tuple[int, int]]
    modules: list[str]
    digest: str
    files: dict[str, bytes]

    def changed_files(self, imported: Collection[str] = ()) -> list[str]:
        """Return which files of the code are others by now, but for those that are imported."""
        left = {path: digest for path, digest in self.files.items() if path not in imported}
        return changed_since(left)

    @property
    def needs_main(self) -> bool:
        """It names something of the program's main module."""
        return not MAINS.isdisjoint(self.modules)


class _Reducers(pickle.Pickler):
    """Notes the modules, and writes tensors and mapped files so that no bytes are copied."""

    modules: set[str]

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _CODE):
            self.modules.add(getattr(obj, "__module__", None) or "builtins")
        elif isinstance(obj, types.ModuleType):  # that code which is written by value uses
            self.modules.add(obj.__name__)
        elif type(obj) is np.memmap:
            # What was written with mode "c" is in this process alone; where a part begins in the
            # file is not known.
            if not isinstance(obj.base, mmap.mmap) or not obj.filename or obj.mode == "c":
                return _memmap, (np.asarray(obj),)
            order = "C" if obj.flags.c_contiguous else "F"
            mode = "r" if obj.mode == "r" else "c"
            return np.memmap, (obj.filename, obj.dtype, mode, obj.offset, obj.shape, order)
        else:
            torch = sys.modules.get("torch")
            if torch is not None and type(obj) is torch.Tensor:
                return _reduced_tensor(torch, obj)
        return NotImplemented


def _memmap(array: np.ndarray) -> Any:
    return array.view(np.memmap)


def _reduced_tensor(torch: Any, tensor: Any) -> Any:
    if tensor.device.type != "cpu" or tensor.requires_grad or not tensor.is_contiguous():
        return NotImplemented
    try:
        return _tensor, (tensor.numpy(),)
    except (TypeError, RuntimeError):  # a type that NumPy does not have
        return NotImplemented


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


def pickled(value: Any, what: str) -> Pickled:
    """Pickle a dataset or a function.

    Parameters
    ----------
    what : str
        What errors call it: "dataset".

    Raises
    ------
    InvalidArgument
        It cannot be pickled; the text names the attribute and the cure.
    """
    buffers: list[pickle.PickleBuffer] = []
    modules: set[str] = set()
    data: Optional[bytes] = None
    # A failure that a variable of this frame had would keep the frame, and those of the callers
    # with all that they hold, until a garbage collection: it is told where it is caught.
    try:
        data = _dump(_Reducers, value, buffers, modules)
    except Exception as failed:  # whatever a user's __reduce__ raises
        if _cloudpickle() is None:
            raise errors.InvalidArgument(_explain(value, what, _text(failed))) from failed
    if data is None or ("__main__" in modules and not _main_is_a_file()):
        by_value = _cloudpickle()
        if by_value is None:
            raise errors.InvalidArgument(_explain(value, what, None))
        buffers.clear()
        modules.clear()
        try:
            data = _dump(by_value, value, buffers, modules)
        except Exception as failed:
            raise errors.InvalidArgument(_explain(value, what, _text(failed))) from failed
        modules.discard("__main__")  # what is of it was written by value
    return _in_memory(data, buffers, sorted(modules))


def _dump(pickler: Any, value: Any, buffers: list[pickle.PickleBuffer], modules: set[str]) -> bytes:
    file = io.BytesIO()
    made = pickler(file, protocol=5, buffer_callback=buffers.append)
    made.modules = modules
    made.dump(value)
    return file.getvalue()


@functools.cache
def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        return None

    class ByValue(cloudpickle.Pickler):
        modules: set[str]

        def reducer_override(self, obj: Any) -> Any:
            made = _Reducers.reducer_override(self, obj)
            return super().reducer_override(obj) if made is NotImplemented else made

    return ByValue


def _main_is_a_file() -> bool:
    """Another process can import the main module: it is no notebook, and no text of ``-c``."""
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:
        return True
    path = getattr(main, "__file__", None)
    return path is not None and os.path.exists(path) and not hasattr(main, "__IPYTHON__")


def _in_memory(data: bytes, buffers: list[pickle.PickleBuffer], modules: list[str]) -> Pickled:
    files = files_of(modules)
    digest = hashlib.blake2b(digest_of(files), digest_size=16)
    fd = memory_kept("feedwater-own-code")
    try:
        pieces, at = [], 0
        for piece in [memoryview(data), *(buffer.raw() for buffer in buffers)]:
            digest.update(f"{piece.nbytes} ".encode())
            for begin in _looked_at(piece.nbytes):
                digest.update(piece[begin : begin + _LOOKED_AT])
            at = -(-at // _UNIT) * _UNIT
            pieces.append((at, piece.nbytes))
            while piece.nbytes:
                written = os.pwrite(fd, piece, at)
                piece, at = piece[written:], at + written
        os.ftruncate(fd, max(at, 1))
    except BaseException:
        close(fd)
        raise
    return Pickled(fd, pieces, modules, digest.hexdigest(), files)


def _looked_at(size: int) -> Iterable[int]:
    if size <= 16 * _LOOKED_AT:
        return range(0, size, _LOOKED_AT)
    return [part * (size - _LOOKED_AT) // 15 for part in range(16)]


def unpickled(fd: int, pieces: list[tuple[int, int]]) -> Any:
    """Return what was pickled. Its arrays are this process's own, copied where they are written."""
    memory = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    views = [memoryview(memory)[at : at + size] for at, size in pieces]
    return pickle.loads(views[0], buffers=views[1:])


# --- what is wrong --------------------------------------------------------------------------------


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _explain(value: Any, what: str, why: Optional[str]) -> str:
    if why is None:
        name = type(value).__qualname__ if type(value).__module__ == "__main__" else "part of it"
        return (
            f"{what} cannot be given to other processes: {name} is defined in a notebook cell or "
            "in a text that Python was given, where they cannot import it. Cure: pip install "
            "cloudpickle, or put it into a .py file that is imported"
        )
    place, part, text = _culprit(value, what, why, set(), 0)
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    cures = [cure for words, cure in _CURES if any(word in text or word in kind for word in words)]
    cure = cures[0] if cures else "leave it out in __getstate__ and make it in __getitem__"
    if "lambda" in text or "local" in text:
        cure += ", or pip install cloudpickle"
    return f"{place} ({kind}) cannot be given to other processes: {text}. Cure: {cure}"


def _culprit(value: Any, place: str, why: str, seen: set[int], depth: int) -> tuple[str, Any, str]:
    """Return the innermost part that cannot be pickled, its place, and why."""
    if id(value) in seen or depth > _DEEPEST:
        return place, value, why
    seen.add(id(value))
    for inner, part in _inner(value):
        try:
            _dump(_Reducers, part, [], set())
        except Exception as failed:
            return _culprit(part, place + inner, _text(failed), seen, depth + 1)
    return place, value, why


def _inner(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{number}]", part) for number, part in enumerate(value)]
    if isinstance(value, functools.partial):
        return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, types.MethodType):
        return [(".__self__", value.__self__)]
    if isinstance(value, _CODE):
        return []
    return [(f".{name}", part) for name, part in getattr(value, "__dict__", {}).items()]
