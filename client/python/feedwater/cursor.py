"""The saved position of a stream: a small JSON object that belongs to the training program.

It is what `Loader.state_dict` returns and what the daemon takes when a stream is opened. The
checksum is over the canonical JSON (sorted keys, no spaces) of all other fields, so a state
survives any JSON writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .crc32c import crc32c
from .errors import FailedPrecondition, InvalidArgument

VERSION = 1
_TEXTS = ("dataset", "pipeline")
_NUMBERS = ("seed", "epoch", "position", "world_size", "batch_size", "substituted")


@dataclass(frozen=True)
class Cursor:
    """A position: `position` samples of the world's order of `epoch` have been taken."""

    dataset: str
    pipeline: str
    seed: int
    epoch: int
    position: int
    world_size: int
    batch_size: int
    substituted: int = 0

    def to_state(self) -> dict[str, Any]:
        """Return the JSON-serialisable form."""
        state: dict[str, Any] = {"version": VERSION, **asdict(self)}
        state["crc32c"] = _checksum(state)
        return state

    def to_json(self) -> str:
        """Return the form that travels to the daemon."""
        return _canonical(self.to_state())

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Cursor:
        """Read a saved state.

        Raises
        ------
        InvalidArgument
            It is no state, of another version, or damaged.
        """
        if not isinstance(state, Mapping):
            raise InvalidArgument(
                f"a state is the dict that state_dict() returned, not {type(state).__name__}"
            )
        if "version" not in state:
            raise InvalidArgument("this is no state of a feedwater.Loader: it has no 'version'")
        if state["version"] != VERSION:
            raise InvalidArgument(
                f"the state has version {state['version']!r}, this client reads version {VERSION}"
            )
        fields = {}
        for name in _TEXTS + _NUMBERS:
            value = state.get(name)
            wanted = str if name in _TEXTS else int
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise InvalidArgument(
                    f"the state's field {name!r} is {value!r}, not {wanted.__name__}"
                )
            if wanted is int and not 0 <= value < 1 << 64:
                raise InvalidArgument(f"the state's field {name!r} is out of range: {value}")
            fields[name] = value
        cursor = cls(**fields)
        content = {key: value for key, value in state.items() if key != "crc32c"}
        try:
            checksum = _checksum(content)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"the state is not JSON: {error}") from error
        if state.get("crc32c") != checksum:
            raise InvalidArgument(
                "the state is damaged or was edited: its crc32c does not fit its content"
            )
        return cursor

    def check_same_source(self, dataset: str, pipeline: str, seed: int) -> None:
        """Refuse a cursor of another dataset, pipeline or seed, naming the field that differs."""
        for name, ours in (("dataset", dataset), ("pipeline", pipeline), ("seed", seed)):
            theirs = getattr(self, name)
            if theirs != ours:
                raise FailedPrecondition(
                    f"the state belongs to another {name}: the state has {theirs}, this loader "
                    f"{ours}; "
                    "continuing would give other samples"
                )


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _checksum(content: Mapping[str, Any]) -> int:
    return crc32c(_canonical(content).encode())
