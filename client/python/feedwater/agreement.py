"""Whether all ranks of a job read the same epoch.

A daemon compares the ranks that it serves. Hosts have daemons of their own, which know nothing of
one another: one with other files, another seed or, of an iterable dataset, other ``workers=`` would
give its ranks other samples, and nobody would notice. So ranks of a process group compare what
their daemons say, through the group's key-value store: who comes first leaves it there. The n-th
loader that one rank makes is compared with the n-th one of another, since names may have been made
up by a process or a host alone. No rank waits for another one, and what goes wrong with the store
is no error of the loader's.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from typing import Any, Optional

from .errors import FailedPrecondition
from .ordinals import Ordinal
from .placement import RankPlacement, process_group

_log = logging.getLogger("feedwater")

_WAIT_MS = 10_000  # for what is in the store already

# Of an OpenStreamResponse: what decides which samples a rank reads, in words.
_TERMS = {
    "own_workers": "the number of workers of the iterable dataset, on all ranks together,",
    "records": "the number of records",
    "dataset_digest": "the dataset's digest",
    "own_identity": "what is served",
    "seed": "the seed",
    "batch_size": "the batch size",
    "steps_per_epoch": "the number of steps",
    "sampler": "the sampler",
}
_PIPELINE = "pipeline_digest"
_CURES = {
    "own_workers": "the same workers= on every rank",
    "records": "the same dataset, and of an iterable one the same length=, on every rank",
    "dataset_digest": "the same files on every host; of a dataset of your own the same version=",
    "own_identity": "the same dataset and ops of your own on every rank; where they are the same "
    "nevertheless (only a pickle differs, as with another path on each host), the same version= on "
    "every rank",
    "sampler": "the same pipeline, shuffle= and drop_last= on every rank",
}


class Agreement:
    """What one loader's daemon says, compared once with what other ranks' daemons do.

    Parameters
    ----------
    is_apart : bool
        The program gave the loader a place that no launch knows. Other ranks need not make the same
        one, so it has a number among those of its world size alone; they are compared where a group
        of that size is initialised later.
    world_size : int
        One loader for this rank alone, where it is apart, has no number.

    Attributes
    ----------
    is_withdrawn : bool
        The loader was refused or could not be made.
    """

    def __init__(self, is_apart: bool, world_size: int) -> None:
        self._series = f"of-{world_size}/" if is_apart else ""
        self._is_settled = is_apart and world_size == 1
        # Now: which loader is asked first may differ from rank to rank.
        self._ordinal = None if self._is_settled else Ordinal.take("compared", self._series)
        self._refusal: Optional[str] = None
        self.is_withdrawn = False

    def check(self, place: RankPlacement, facts: Any) -> None:
        """Compare what this rank reads with the first rank that came, if there is a group by now.

        Parameters
        ----------
        place : RankPlacement
        facts : OpenStreamResponse

        Raises
        ------
        FailedPrecondition
            They read different epochs; the text says what differs.
        """
        if not self._is_settled:
            self._is_settled = self._settle(place, facts)
        if self._refusal is not None:
            self.withdraw()
            raise FailedPrecondition(self._refusal)

    def withdraw(self) -> None:
        """Forget a loader that was refused or could not be made: the next one takes its place."""
        self.is_withdrawn = True
        if self._ordinal is not None:
            self._ordinal.give_back()

    def _settle(self, place: RankPlacement, facts: Any) -> bool:
        """Return false if it cannot be done yet."""
        if place.world_size == 1:
            return False  # it moves, where a group is initialised later
        try:
            group = process_group()
        except FailedPrecondition:  # two of them contradict one another, and the place was given
            return True
        if group is None:
            return False
        if (group.rank, group.world_size) != (place.rank, place.world_size):
            return True  # ranks of the program's own making: who belongs to whom is not known
        store = _torch_store() or _jax_store()
        if store is None:
            return True
        assert self._ordinal is not None
        number = self._ordinal.number
        ours = {term: getattr(facts, term) for term in (*_TERMS, _PIPELINE)}
        kind = "the dataset" if _is_own_dataset(facts.own_identity) else "pipeline"
        ours.update(rank=place.rank, name=f"{kind} {facts.pipeline}")
        try:
            first = json.loads(store(f"feedwater/{self._series}{number}", json.dumps(ours)))
            theirs = {term: first[term] for term in ours}
        except Exception as error:
            _log.debug("loader %d of this rank is not compared: %s", number, str(error))
            return True
        self._refusal = _difference(theirs, ours, number)
        return True


def _is_own_dataset(identity: str) -> bool:
    """Tell whether a dataset is the user's own, and not its ops alone."""
    return identity != "" and not identity.startswith("op ")


def _difference(theirs: dict[str, Any], ours: dict[str, Any], ordinal: int) -> Optional[str]:
    """Return why this rank is refused, or None."""
    if theirs["name"] != ours["name"]:
        _log.warning(
            "loader %d of rank %d reads %s, and that of rank %d %s: the two are not compared. Make "
            "the same loaders in the same order on every rank, so that ranks which would read "
            "other samples are found.",
            ordinal,
            ours["rank"],
            ours["name"],
            theirs["rank"],
            theirs["name"],
        )
        return None
    terms = dict(_TERMS)
    if _is_own_dataset(ours["own_identity"]):  # where it lies is not in its pipeline
        terms[_PIPELINE] = "the pipeline's digest"
    for term, words in terms.items():
        if theirs[term] != ours[term]:
            cure = _CURES.get(term, "the same pipeline and arguments on every rank")
            return (
                f"rank {ours['rank']} would read other samples of {ours['name']} than its place in "
                f"the epoch has: {words} is {theirs[term]} at rank {theirs['rank']} and "
                f"{ours[term]} here. Cure: {cure}"
            )
    if theirs[_PIPELINE] != ours[_PIPELINE]:
        _log.warning(
            "rank %d runs another %s than rank %d: its digest is %s there and %s here, so no saved "
            "state fits both, and samples may differ. Give all ranks the same pipeline.",
            ours["rank"],
            ours["name"],
            theirs["rank"],
            theirs[_PIPELINE],
            ours[_PIPELINE],
        )
    return None


# --- stores: each puts a text where there is none, and returns what is there ----------------------


def _torch_store() -> Optional[Callable[[str, str], Any]]:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    find = getattr(
        sys.modules.get("torch.distributed.distributed_c10d"), "_get_default_store", None
    )
    return None if find is None else lambda key, text: find().compare_set(key, "", text)


def _jax_store() -> Optional[Callable[[str, str], Any]]:
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    client = getattr(state, "client", None)
    if client is None:
        return None

    def put(key: str, text: str) -> Any:
        try:
            client.key_value_set(key, text)
        except Exception:  # there is one
            return client.blocking_key_value_get(key, _WAIT_MS)
        return text

    return put
