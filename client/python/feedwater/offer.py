"""`Offer`: what a program provides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .own_stream import Share
from .samples import FieldNames


@dataclass
class Offer:
    """What is provided.

    Attributes
    ----------
    name, version : str
    is_op : bool
    workers : int
        Processes.
    timeout : float
        Seconds that one record or call may take.
    seeded : bool
    fields : FieldNames or None
        As the user names them.
    length : int or None
        Samples of an epoch of an iterable dataset, on all ranks; None: it is none.
    rank, world_size : int
        Of an iterable dataset: each rank has as many processes.
    """

    name: str
    version: str
    is_op: bool
    workers: int
    timeout: float
    seeded: bool = True
    fields: Optional[FieldNames] = None
    length: Optional[int] = None
    rank: int = 0
    world_size: int = 1

    def share_of(self, number: int) -> Optional[Share]:
        """Return what a process of this program makes of an iterable dataset. With the records of a
        step in turn, those of a rank are its own processes' alone.
        """
        if self.length is None:
            return None
        workers = self.workers * self.world_size
        return Share(number * self.world_size + self.rank, workers, self.length)

    @property
    def what(self) -> str:
        """Its kind and name, for people."""
        return f"{'op' if self.is_op else 'source'} {self.name!r}"
