"""What a loader reads, as torchvision's datasets tell it: how many records of which classes, the
file and the label of each. Their pixels come in batches alone.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union, overload

from . import errors
from .control import Control, messages
from .habits import Step
from .units import count_of

_PAGE = 8192  # records that are asked for at a time
_ANSWER_S = 60.0

Sample = tuple[str, Optional[int]]


@dataclass(frozen=True)
class RecordLister:
    """Asks the daemon where the records of a running job lie."""

    address: str
    job: str
    pipeline: str

    def list(self, first: int, records: int, digest: str) -> list[Sample]:
        """Return path and label of so many records.

        Raises
        ------
        NotFound
            The job has ended.
        FailedPrecondition
            A job of that name reads another dataset by now.
        """
        samples: list[Sample] = []
        with Control(self.address) as control:
            while len(samples) < records:
                answer = control.call(
                    "ListRecords",
                    messages.ListRecordsRequest(
                        job=self.job,
                        pipeline=self.pipeline,
                        first=first + len(samples),
                        records=records - len(samples),
                    ),
                    _ANSWER_S,
                )
                if answer.dataset_digest != digest or not answer.records:
                    raise errors.FailedPrecondition(
                        f"job {self.job!r} reads another dataset than this loader did: open a new "
                        "loader"
                    )
                samples.extend(
                    (
                        os.fsdecode(os.path.join(answer.root, record.path)),
                        int(record.label) if record.HasField("label") else None,
                    )
                    for record in answer.records
                )
        return samples


class Dataset(Sequence[Sample]):
    """The records that a loader reads, in the order of their numbers (``sample_id``).

    ``dataset[i]`` and ``samples[i]`` are a record's path and label, not its pixels. The daemon is
    asked when they are first wanted, some thousand records at a time, and what it said is kept: a
    loader must be open then. Paths are those that the daemon sees. A record's label is None where
    it stands in the record itself (CIFAR, MNIST) and not in its place.

    Attributes
    ----------
    classes : list of str
        Names by label.
    class_to_idx : dict of str to int
    digest : str
        Of the files, as in a saved state.
    """

    def __init__(
        self, records: int, classes: list[str], digest: str, lister: Optional[RecordLister] = None
    ) -> None:
        self._records = records
        self.classes = classes
        self.class_to_idx = {name: number for number, name in enumerate(classes)}
        self.digest = digest
        self._lister = lister
        self._pages: dict[int, list[Sample]] = {}

    def __len__(self) -> int:
        return self._records

    def __repr__(self) -> str:
        classes = count_of(len(self.classes), "class")
        return f"Dataset({count_of(self._records, 'record')}, {classes})"

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Sample, list[Sample]]:
        """Return path and label of a record, or of several.

        Raises
        ------
        IndexError
            There is no such record.
        TypeError
            The index is no number and no slice.
        Error
            As the daemon says.
        """
        if isinstance(index, slice):
            return [self._sample(i) for i in range(*index.indices(self._records))]
        number = operator.index(index)
        if number < 0:
            number += self._records
        if not 0 <= number < self._records:
            raise IndexError(f"there is no record {index}: there are {self._records}")
        return self._sample(number)

    def __getitems__(self, what: Any) -> Any:
        """Return the batch for which a step of a loader's `batch_sampler` stands: what a DataLoader
        asks of its dataset.
        """
        if isinstance(what, Step):
            return what.take()
        raise TypeError(
            "a DataLoader over loader.dataset would give paths and labels, not batches: use the "
            "feedwater.Loader itself, and as it is (Ray's prepare_data_loader() makes such a one)"
        )

    def _sample(self, number: int) -> Sample:
        page = number - number % _PAGE
        if page not in self._pages:
            if self._lister is None:
                raise errors.FailedPrecondition("this dataset belongs to no loader")
            records = min(_PAGE, self._records - page)
            self._pages[page] = self._lister.list(page, records, self.digest)
        return self._pages[page][number - page]

    @property
    def samples(self) -> Dataset:
        """Path and label of each record: this object, under the name that torchvision has."""
        return self

    @property
    def imgs(self) -> Dataset:
        """`samples`, by torchvision's other name."""
        return self

    @property
    def targets(self) -> list[Optional[int]]:
        """The label of each record."""
        return [label for _, label in self]
