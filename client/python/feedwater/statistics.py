"""What a loader counts, and how long its program waited."""

from __future__ import annotations

import logging
import shlex
import time
from collections import deque
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from .stream import Batch, Failure

_log = logging.getLogger("feedwater")

_SUBSTITUTED = "replaced by others (on_bad_sample: substitute)"
_SKIPPED = "not real in their batches (on_bad_sample: skip_with_count)"
_LATENCIES = 4096  # the last so many, for the percentiles


class BatchInfo(NamedTuple):
    """What is known of a batch beside its tensors.

    ``samples`` are the rows of every tensor, ``real_samples`` those that are neither padding nor
    skipped, ``substituted`` those whose own record was bad, ``skipped`` those of them that are not
    real (``on_bad_sample: skip_with_count``). The pipeline's output ``is_real`` says which.
    """

    epoch: int
    step: int
    samples: int
    real_samples: int
    substituted: int
    skipped: int


class Replaced:
    """Says where a batch has samples in place of those that could not be made.

    A program that is given others without a word would train on them unawares. An epoch has two
    lines at most: one at the first such batch, and the sum at its end where there were more. One
    that is begun again, as after `set_epoch` or `load_state_dict`, has lines of its own.
    """

    def __init__(self) -> None:
        self._epoch = self._step = -1
        self._samples = self._replaced = self._told = 0
        self._did = ""

    def took(self, ready: Any, pipeline: str, address: str) -> None:
        """Count a batch that the program gets, and say what is to be said."""
        if ready.epoch != self._epoch or ready.step <= self._step:
            self._epoch, self._samples, self._replaced, self._told = ready.epoch, 0, 0, 0
        self._step = ready.step
        self._samples += ready.samples
        self._replaced += ready.substituted
        if ready.substituted and not self._told:
            self._told = ready.substituted
            self._did = "skipped" if ready.skipped else "replaced"
            how = _SKIPPED if ready.skipped else _SUBSTITUTED
            _log.warning(
                "%s: samples that cannot be made are %s: %d in the batch of epoch %d, step %d; "
                "`feedwater --address %s status --bad` lists them",
                pipeline,
                how,
                ready.substituted,
                ready.epoch,
                ready.step,
                shlex.quote(address),
            )
        if ready.last_in_epoch and self._replaced > self._told:
            self._told = self._replaced
            _log.warning(
                "%s: %d of %d samples that were taken of epoch %d were %s",
                pipeline,
                self._replaced,
                self._samples,
                ready.epoch,
                self._did,
            )


class Statistics:
    """Counts and times since the loader was made."""

    def __init__(self) -> None:
        names = ("batches", "samples", "real_samples", "substituted", "skipped")
        self._counts = dict.fromkeys(names, 0)
        self.last: Optional[BatchInfo] = None
        self._wait_ns = 0
        self._waits = 0
        self._handover_ns: deque[int] = deque(maxlen=_LATENCIES)

    def received(self, got: Union[Batch, Failure], waited_ns: Optional[int]) -> None:
        """Count a wait; None: nobody waited."""
        if waited_ns is None:
            return
        self._waits += 1
        self._wait_ns += waited_ns
        if isinstance(got, Batch):
            self._handover_ns.append(time.monotonic_ns() - got.ready.published_ns)

    def delivered(self, ready: Any) -> None:
        """Count a batch that the program gets."""
        counts = self._counts
        counts["batches"] += 1
        counts["samples"] += ready.samples
        counts["real_samples"] += ready.real_samples
        counts["substituted"] += ready.substituted
        counts["skipped"] += ready.skipped
        self.last = BatchInfo(
            ready.epoch,
            ready.step,
            ready.samples,
            ready.real_samples,
            ready.substituted,
            ready.skipped,
        )

    def report(self) -> dict[str, Any]:
        """Return what `Loader.stats` says of them."""
        p50, p99 = None, None
        if self._handover_ns:
            p50, p99 = (float(x) / 1e3 for x in np.percentile(list(self._handover_ns), [50, 99]))
        return {
            **self._counts,
            "waits": self._waits,
            "wait_s": self._wait_ns / 1e9,
            "handover_us_p50": p50,
            "handover_us_p99": p99,
        }
