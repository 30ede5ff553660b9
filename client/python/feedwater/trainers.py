"""What trainers keep about the loader that is being iterated: Accelerate's ``GradientState``.

A DataLoader that Accelerate has prepared tells it which batch is an epoch's last and how much of
that is padding. `Accelerator.gather_for_metrics` cuts the padding off by it, and
`Accelerator.accumulate` steps there. A `feedwater.Loader` is left as it is by ``prepare``, so it
tells this itself.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from typing import Any

_log = logging.getLogger("feedwater")
_warned: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders


def _gradient_state() -> Any:
    """Return Accelerate's state where the program has set up an Accelerator, else None."""
    module = sys.modules.get("accelerate.state")
    state = getattr(module, "GradientState", None)
    if state is None or not getattr(state, "_shared_state", None):
        return None
    return state()


def begin(loader: Any) -> None:
    """Tell that an epoch of the loader begins."""
    state = _gradient_state()
    if state is None:
        return
    try:
        with contextlib.suppress(ValueError):  # older versions want it to be there
            state._remove_dataloader(loader)
        state._add_dataloader(loader)
    except AttributeError:  # of a version that keeps it elsewhere
        _log.debug("this version of accelerate is not told where an epoch ends")
    if loader not in _warned and (text := _trouble(loader)):
        _warned.add(loader)
        _log.warning(text, loader.pipeline)


def _trouble(loader: Any) -> str:
    """Return what Accelerate would get wrong; empty: nothing."""
    processes = getattr(sys.modules["accelerate.state"], "PartialState", None)
    if (
        loader.is_rank_of_launch
        and getattr(processes, "_shared_state", {}).get("num_processes") == 1
    ):
        return (
            "%s is read as one rank of several, and Accelerate trains in each process alone: no "
            "gradients are averaged. On machines without a GPU say Accelerator(cpu=True), or "
            "TrainingArguments(use_cpu=True)."
        )
    if loader.has_uneven_batches:
        return (
            "the last batches of %s differ in size between the ranks (`last: partial`), which "
            "Accelerate cannot gather: it fails or waits for ever. With `sampler: {last: pad}` in "
            "the pipeline they are equal, and gather_for_metrics cuts off what was repeated."
        )
    if loader.has_scattered_padding:
        return (
            "the padding of %s lies at the end of each rank's last batch (`shard: interleave`), "
            "where Accelerate does not look for it: gather_for_metrics keeps what was repeated. "
            "With `sampler: {shard: batch}` in the pipeline it cuts that off; or gather `is_real`, "
            "too, and leave out what is not."
        )
    return ""


def end(loader: Any) -> None:
    """Tell that the epoch is over."""
    with contextlib.suppress(Exception):  # the interpreter may be ending
        state = _gradient_state()
        if state is not None:
            state._remove_dataloader(loader)
