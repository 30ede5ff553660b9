"""`Ragged`: an output whose number of rows differs from sample to sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional, Protocol, Union, overload

import numpy as np

from . import errors
from .fields import Place


class _Memory(Protocol):
    def array(self, place: Place, samples: int) -> np.ndarray: ...


class Ragged(Sequence[Any]):
    """Rows of all samples of a batch, of which each sample has its own number: boxes, labels,
    tokens.

    ``ragged[i]`` are the rows of sample i, a view; ``for rows in ragged`` goes through the samples,
    ``len(ragged)`` is their number.

    Attributes
    ----------
    values : array
        Of NumPy, torch or JAX, as the loader's `output` says: the rows of all samples, one after
        the other, shape ``(rows, ...)``.
    offsets : array of int64
        Of the same kind, one longer than there are samples: sample i has the rows
        ``values[offsets[i]:offsets[i + 1]]``.
    """

    __slots__ = ("_bounds", "offsets", "values")

    def __init__(self, values: Any, offsets: Any, bounds: Optional[Sequence[int]] = None) -> None:
        self.values = values
        self.offsets = offsets
        # The offsets as numbers of Python's: those of a device would be waited for each time.
        self._bounds = list(offsets.tolist() if bounds is None else bounds)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: Union[int, slice]) -> Any:
        """Return the rows of a sample, or a list of those of several.

        Raises
        ------
        IndexError
            There is no such sample.
        """
        samples = range(len(self))
        if isinstance(index, slice):
            return [self[i] for i in samples[index]]
        try:
            i = samples[index]
        except IndexError:
            raise IndexError(f"there is no sample {index}: there are {len(self)}") from None
        return self.values[self._bounds[i] : self._bounds[i + 1]]

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows of each sample."""
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<feedwater.Ragged of {len(self)} samples, values {tuple(self.values.shape)}>"

    @property
    def lengths(self) -> Any:
        """How many rows each sample has: an array of int64."""
        return self.offsets[1:] - self.offsets[:-1]

    def to_list(self) -> list[Any]:
        """Return the rows of each sample as lists of Python's numbers."""
        return [rows.tolist() for rows in self]

    def pad(self, value: Any = 0, rows: Union[int, Iterable[int], None] = None) -> Any:
        """Return one array, shape ``(samples, rows, ...)``.

        Parameters
        ----------
        value : number
            Stands behind the rows of samples that have fewer.
        rows : int or iterable of int, optional
            Default: as many as the sample with the most has. Of several (buckets): the smallest
            number that is enough, so that a compiler sees few shapes.

        Raises
        ------
        InvalidArgument
            A sample has more rows.
        """
        counts = [end - begin for begin, end in zip(self._bounds, self._bounds[1:])]
        most = max(counts, default=0)
        if rows is None:
            rows = most
        elif isinstance(rows, Iterable):
            buckets = sorted(rows)
            rows = next((bucket for bucket in buckets if bucket >= most), max(buckets, default=0))
        if most > rows:
            raise errors.InvalidArgument(f"a sample has {most} rows, more than the {rows} of pad()")
        shape = (len(self), rows, *self.values.shape[1:])
        if hasattr(self.values, "new_full"):  # torch
            padded = self.values.new_full(shape, value)
        elif isinstance(self.values, np.ndarray):
            padded = np.full(shape, value, dtype=self.values.dtype)
        else:
            return self._pad_jax(shape, value)
        for sample, (count, own) in enumerate(zip(counts, self)):
            padded[sample, :count] = own
        return padded

    def _pad_jax(self, shape: tuple[int, ...], value: Any) -> Any:
        import jax.numpy as jnp

        host = Ragged(np.asarray(self.values), None, self._bounds)
        return jnp.asarray(host.pad(value, shape[1]))

    def map(self, change: Callable[[Any], Any]) -> Ragged:
        """Return it with what `change` makes of `values` and of `offsets`, of the same shapes."""
        return Ragged(change(self.values), change(self.offsets), self._bounds)

    def to(self, *where: Any, **options: Any) -> Ragged:
        """Return it on a device, or of another type, as `torch.Tensor.to` does; torch only. The
        offsets stay int64.
        """
        values = self.values.to(*where, **options)
        moved = self.offsets.to(
            device=values.device, non_blocking=bool(options.get("non_blocking", False))
        )
        return Ragged(values, moved, self._bounds)

    def pin_memory(self) -> Ragged:
        """Return it in memory that a device can copy from at once; torch only."""
        return self.map(lambda tensor: tensor.pin_memory())


def arrays(memory: _Memory, place: Place, samples: int) -> list[np.ndarray]:
    """Return what an output consists of in memory, as NumPy arrays over it: one, or the rows and
    the offsets of a ragged one.

    Raises
    ------
    Error
        The offsets make no sense.
    """
    if place.offsets is None:
        return [memory.array(place, samples)]
    offsets = memory.array(place.offsets, samples + 1)
    rows = int(offsets[samples])
    sorted_ = offsets[0] == 0 and bool((offsets[1:] >= offsets[:-1]).all())
    if not sorted_ or rows > samples * place.max_rows:
        raise errors.Error(f"the daemon lent a batch with impossible offsets of {place.name!r}")
    return [memory.array(place, rows), offsets]
