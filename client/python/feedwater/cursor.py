"""The saved position of a stream: a small JSON object that belongs to the training program.

It is what `Loader.state_dict` returns and what the daemon takes when a stream is opened. The
checksum is over the canonical JSON (sorted keys, no spaces) of all other fields, so a state
survives any JSON writer. Version 1 is a position; version 2 also has ``skip``, the ranges of
positions that the program leaves out further on, and so is refused by a client that would not
leave them out. Only version 1 travels to the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from .crc32c import crc32c
from .errors import FailedPrecondition, InvalidArgument

MAX_SKIPS = 8
_TEXTS = ("dataset", "pipeline")
_NUMBERS = ("seed", "epoch", "position", "world_size", "batch_size", "substituted")
_WIDE = ("seed", "epoch")  # 64 bits; the others have 63
_MAX_DIGEST = 64

Skips = tuple[tuple[int, int, int], ...]  # (epoch, first position, end position)


@dataclass(frozen=True)
class Cursor:
    """A position: `position` samples of the world's order of `epoch` have been taken.

    `skip` holds what is left out further on: sorted ranges that do not touch.
    """

    dataset: str
    pipeline: str
    seed: int
    epoch: int
    position: int
    world_size: int
    batch_size: int
    substituted: int = 0
    skip: Skips = ()

    def to_state(self) -> dict[str, Any]:
        """Return the JSON-serialisable form."""
        state: dict[str, Any] = {"version": 2 if self.skip else 1, **asdict(self)}
        del state["skip"]
        if self.skip:
            state["skip"] = [list(part) for part in self.skip]
        state["crc32c"] = _checksum(state)
        return state

    def to_json(self) -> str:
        """Return the form that travels to the daemon."""
        return _canonical(replace(self, skip=()).to_state())

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Cursor:
        """Read a saved state.

        Raises
        ------
        InvalidArgument
            It is no state, of another version, or damaged; the text names the field.
        """
        if not isinstance(state, Mapping):
            raise InvalidArgument(
                f"a state is the dict that state_dict() returned, not {type(state).__name__}"
            )
        if "version" not in state:
            raise InvalidArgument("this is no state of a feedwater.Loader: it has no 'version'")
        version = state["version"]
        if not _is_whole(version) or version not in (1, 2):
            raise InvalidArgument(
                f"the state's field 'version' is {_shown(version)}, this client reads versions 1 "
                "and 2"
            )
        fields = {}
        for name in _TEXTS + _NUMBERS:
            if name not in state:
                raise InvalidArgument(f"the state's field {name!r} is missing")
            value = state[name]
            if name in _TEXTS:
                if not isinstance(value, str) or len(value) > _MAX_DIGEST:
                    raise InvalidArgument(f"the state's field {name!r} is no digest")
            elif not _is_whole(value):
                raise InvalidArgument(f"the state's field {name!r} is {_shown(value)}, not int")
            elif not 0 <= value < 1 << (64 if name in _WIDE else 63):
                raise InvalidArgument(f"the state's field {name!r} is out of range")
            fields[name] = value
        known = {"version", "crc32c", *_TEXTS, *_NUMBERS, *(["skip"] if version == 2 else [])}
        for name in state:
            if name not in known:
                raise InvalidArgument(
                    f"the state's field {_shown(name)} is unknown in version {version}"
                )
        skip = _read_skips(state.get("skip")) if version == 2 else ()
        content = {key: value for key, value in state.items() if key != "crc32c"}
        if state.get("crc32c") != _checksum(content):
            raise InvalidArgument(
                "the state is damaged or was edited: its crc32c does not fit its content"
            )
        return cls(**fields, skip=skip)

    def check_same_source(
        self, dataset: str, pipeline: str, seed: int, about_dataset: str = ""
    ) -> None:
        """Refuse a cursor of another dataset, pipeline or seed, naming the field that differs.

        `about_dataset` says what makes it another dataset.
        """
        cures = {
            "dataset": "open the loader on the files that it was saved with",
            "pipeline": "open the loader with the pipeline that it was saved with",
            "seed": f"open the loader with seed={self.seed}",
        }
        for name, ours in (("dataset", dataset), ("pipeline", pipeline), ("seed", seed)):
            theirs = getattr(self, name)
            if theirs != ours:
                raise FailedPrecondition(
                    f"the state belongs to another {name}: the state has {theirs}, this loader "
                    f"{ours}; continuing would give other samples"
                    + (about_dataset if name == "dataset" else "")
                    + f". Cure: {cures[name]}; or do not load it, and begin an epoch anew with "
                    f"set_epoch({self.epoch})"
                )

    def check_same_world(self, world_size: int) -> None:
        """Refuse a cursor of another world size, where each rank makes its own records."""
        if self.world_size != world_size:
            raise FailedPrecondition(
                f"the state was saved with world size {self.world_size}, and this loader's is "
                f"{world_size}: of an iterable dataset each rank makes its own samples, so it goes "
                "on with the same world size alone"
            )


def add_skip(skips: Skips, epoch: int, first: int, end: int) -> Skips:
    """Return `skips` with the positions ``[first, end)`` of an epoch left out as well."""
    apart = []
    for part in skips:
        if part[0] == epoch and part[1] <= end and first <= part[2]:
            first, end = min(first, part[1]), max(end, part[2])
        else:
            apart.append(part)
    if len(apart) == MAX_SKIPS:
        raise InvalidArgument(
            f"at most {MAX_SKIPS} ranges can be left out at a time: a range that has been passed "
            "makes room"
        )
    return tuple(sorted([*apart, (epoch, first, end)]))


def forget_passed(skips: Skips, epoch: int, position: int) -> Skips:
    """Return `skips` without what lies behind a position."""
    if not skips:
        return skips
    return tuple(part for part in skips if (part[0], part[2]) > (epoch, position))


def after_skips(skips: Skips, epoch: int, position: int, global_batch: int) -> int:
    """Return where to go on: behind every range that a batch beginning at `position` touches."""
    for of_epoch, first, end in skips:  # sorted: leaving one can only lead into a later one
        if of_epoch == epoch and position < end and first - position < global_batch:
            position = end
    return position


def _read_skips(value: Any) -> Skips:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_SKIPS:
        raise InvalidArgument(f"the state's field 'skip' is no list of 1 to {MAX_SKIPS} ranges")
    skips: Skips = ()
    for part in value:
        good = isinstance(part, (list, tuple)) and len(part) == 3 and all(map(_is_whole, part))
        if not good or not (0 <= part[0] < 1 << 64 and 0 <= part[1] < part[2] < 1 << 63):
            raise InvalidArgument(
                "the state's field 'skip' holds something that is no [epoch, first, end]"
            )
        skips = add_skip(skips, *part)
    return skips


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return `value` for a message; a hostile one may be endless, or no text at all."""
    if isinstance(value, (str, int, float, type(None))):
        try:
            text = repr(value)
        except ValueError:  # an int of thousands of digits
            return "a number without end"
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(value).__name__}"


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _checksum(content: Mapping[str, Any]) -> int:
    return crc32c(_canonical(content).encode())
