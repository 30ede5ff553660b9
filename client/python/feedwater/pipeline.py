"""`Pipeline`: a pipeline file written in Python, and `Op`, a step of its graph."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Callable, NoReturn, Optional, TypeVar, Union

from . import errors
from ._pipeline_schema import BATCH_OPS, KEYS, KNOWN_AS, OPS, SECTIONS
from .pipeline_values import check, plain
from .yaml_text import file_text, flow

MAX_YAML = 256 << 10


class Op:
    """A step of a pipeline's graph, as the functions of `feedwater.ops` make it. It never changes.

    Attributes
    ----------
    name : str
        The op's name.
    params : dict
        What stands below the name in a pipeline file, a copy. Parameters that have their default
        are left out.
    """

    __slots__ = ("_params", "_text", "name")

    name: str
    _params: dict[str, Any]
    _text: str

    def __init__(self, name: str, params: Mapping[str, Any]) -> None:
        params = plain(dict(params), f"feedwater.ops.{name}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_params", params)
        object.__setattr__(self, "_text", flow({name: params}))

    @classmethod
    def make(cls, name: str, arguments: Mapping[str, Any]) -> Op:
        """Return the op of a function of `feedwater.ops`, whose arguments are checked."""
        schemas = {**OPS, **BATCH_OPS}[name]
        ports, params = {}, {}
        for argument, value in arguments.items():
            key = "in" if argument == "in_" else argument
            if value is None:
                if key in schemas["required"]:
                    raise errors.InvalidArgument(f"feedwater.ops.{name}: {key} is None")
                continue
            schema = schemas["properties"][key]
            value = plain(value, f"feedwater.ops.{name}: {argument}")
            check(value, schema, f"feedwater.ops.{name}: {argument}")
            if key in ("in", "out"):
                ports[key] = value
            elif "default" not in schema or value != schema["default"]:
                params[key] = value
        return cls(name, {**ports, **params})

    @property
    def params(self) -> dict[str, Any]:
        """What stands below the name in a pipeline file, a copy."""
        copied: dict[str, Any] = plain(self._params, self.name)
        return copied

    def to_plain(self) -> Any:
        """Return the entry of `graph:`: the name alone, or a map of it."""
        return {self.name: self.params} if self._params else self.name

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an op does not change: make another feedwater.ops.{self.name}(...)")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Op) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{'in_' if key == 'in' else key}={value!r}" for key, value in self._params.items()
        )
        return f"feedwater.ops.{self.name}({shown})"

    def __reduce__(self) -> Any:
        return (Op, (self.name, self._params))


# What stands in a graph: an op, or an entry as a pipeline file has it.
GraphEntry = Union[Op, str, Mapping[str, Any]]


class Pipeline:
    """A pipeline file written in Python. `Loader` takes it in place of a file.

    >>> from feedwater import Pipeline, ops
    >>> pipeline = Pipeline(
    ...     dataset={"format": "image_folder", "root": "imagenet", "path": "train"},
    ...     sampler={"shuffle": "full", "seed": 42, "last": "drop"},
    ...     graph=[
    ...         ops.decode(),
    ...         ops.random_resized_crop(size=[224, 224]),
    ...         ops.random_horizontal_flip(),
    ...         ops.normalize(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    ...     ],
    ...     batch=256,
    ... )

    The arguments are the keys of the file, which the page config/reference/pipeline.md describes;
    what is left out has the file's default. Types are checked here, everything else by the daemon
    or `feedwater validate`, which say line and column of `to_yaml`'s text.

    Parameters
    ----------
    dataset : mapping
        What is read: ``format``, ``root``, ``path`` and the format's own keys; or ``mix``.
    sampler : mapping, optional
        Order of the records: ``shuffle``, ``seed``, ``last``, ``shard``, ``block_records``.
    graph : sequence of Op, optional
        What happens to each sample. An entry may also be a map, or a name, as in the file.
    batch : int or mapping, optional
        Samples of a rank's batch; or ``size`` and ``graph``, ops on whole batches.
    outputs : sequence of str, optional
        The fields that a batch has, in this order; default ``["image", "label"]``. A map such as
        ``{"boxes": {"max_rows": 128}}`` bounds a field whose number of rows differs.
    on_bad_sample : {"fail", "substitute", "skip_with_count"}, optional
        What happens when a sample cannot be made.
    max_bad_fraction : float, optional
        How many of a rank's samples of an epoch may be bad.
    limits : mapping, optional
        What an image and a sample may cost.
    cache : mapping, optional
        What is kept for the next epoch and the next job: ``kind``, ``ram``, ``disk``.
    name : str
        Not a part of the file: errors and the daemon's status call it ``<NAME>``.

    Raises
    ------
    InvalidArgument
        An argument that can never be what a pipeline file says; the text names it.
    """

    __slots__ = ("_sections", "_text", "name")

    def __init__(
        self,
        *,
        dataset: Mapping[str, Any],
        sampler: Optional[Mapping[str, Any]] = None,
        graph: Optional[Sequence[GraphEntry]] = None,
        batch: Union[int, Mapping[str, Any], None] = None,
        outputs: Optional[Sequence[Union[str, Mapping[str, Any]]]] = None,
        on_bad_sample: Optional[str] = None,
        max_bad_fraction: Optional[float] = None,
        limits: Optional[Mapping[str, Any]] = None,
        cache: Optional[Mapping[str, Any]] = None,
        name: str = "Pipeline",
    ) -> None:
        self.name = _name(name)
        sections: dict[str, Any] = {"version": 1, "dataset": _map("dataset", dataset)}
        for key, section in (("sampler", sampler), ("cache", cache), ("limits", limits)):
            if section is not None:
                sections[key] = _map(key, section)
        if graph is not None:
            sections["graph"] = _graph("graph", graph, OPS, BATCH_OPS)
        if batch is not None:
            sections["batch"] = _batch(batch)
        if outputs is not None:
            sections["outputs"] = _outputs(outputs)
        for key, value in (
            ("on_bad_sample", on_bad_sample),
            ("max_bad_fraction", max_bad_fraction),
        ):
            if value is not None:
                sections[key] = plain(value, key)
                check(sections[key], SECTIONS[key], key)
        self._sections = {key: sections[key] for key in KEYS if key in sections}
        self._text = file_text(self._sections)
        if len(self._text.encode()) > MAX_YAML:
            raise errors.InvalidArgument(
                f"the pipeline's text is larger than {MAX_YAML >> 10} KiB, which is the most that "
                "a daemon takes"
            )

    def to_yaml(self) -> str:
        """Return the pipeline file, which `feedwater validate` and `Loader` take."""
        return self._text

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline file as maps, lists, texts and numbers: what a YAML parser gives."""
        copied: dict[str, Any] = plain(self._sections, "pipeline")
        return copied

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the pipeline file. One that is there is replaced as a whole."""
        name = os.fspath(path)
        temporary = f"{name}.{os.getpid()}.tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(self._text)
            os.replace(temporary, name)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Pipeline) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        shown = [f"{key}={value!r}" for key, value in self._sections.items() if key != "version"]
        shown += [f"name={self.name!r}"] if self.name != "Pipeline" else []
        return f"feedwater.Pipeline({', '.join(shown)})"


def _name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[\w -]{1,64}", name, re.ASCII):
        raise errors.InvalidArgument(
            f"name is {name!r}: it is 1 to 64 letters, digits, blanks, '_' and '-'"
        )
    return name


def _map(key: str, value: Any) -> dict[str, Any]:
    """Return a section that is a map, with the keys checked that this client knows.

    The daemon, which may be newer, knows all keys, and refuses others with the nearest one.
    """
    if not isinstance(value, Mapping):
        example = " such as {'format': 'image_folder', 'root': 'photos'}" * (key == "dataset")
        raise errors.InvalidArgument(f"{key} is {value!r}: it is a map{example}")
    found: dict[str, Any] = plain(value, key)
    for name, schema in SECTIONS.get(key, {}).items():
        if found.get(name) is not None:
            check(found[name], schema, f"{key}[{name!r}]")
    return found


def _entries(key: str, value: Any, what: str) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping, Op)) or not isinstance(value, Iterable):
        raise errors.InvalidArgument(f"{key} is {value!r}: it is a list of {what}")
    return list(value)


def _graph(
    key: str, value: Any, known: Mapping[str, Any], elsewhere: Mapping[str, Any]
) -> list[Any]:
    found = []
    for number, entry in enumerate(_entries(key, value, "feedwater.ops")):
        where = f"{key}[{number}]"
        if callable(entry) and getattr(entry, "__module__", "") == "feedwater.ops":
            raise errors.InvalidArgument(
                f"{where} is the function feedwater.ops.{entry.__name__}: call it"
            )
        is_map = isinstance(entry, Mapping) and len(entry) == 1
        if not is_map and not isinstance(entry, (Op, str)):
            raise errors.InvalidArgument(
                f"{where} is {entry!r}: it is one of feedwater.ops, or a map such as "
                "{'resize': {'size': 256}}"
            )
        made = plain(entry, where)
        name, params = next(iter(made.items())) if isinstance(made, dict) else (made, None)
        if name in elsewhere and name not in known:
            place = "batch={'graph': [...]}" if elsewhere is BATCH_OPS else "graph"
            work = "whole batches" if elsewhere is BATCH_OPS else "single samples"
            raise errors.InvalidArgument(
                f"{where}: {name} works on {work}, so it stands in {place}"
            )
        if params is not None and not isinstance(params, dict):
            raise errors.InvalidArgument(
                f"{where}: {name} has {params!r}: its parameters are a map"
            )
        schemas = known[name]["properties"] if name in known else {}
        for param, given in (params or {}).items():
            if param in schemas:
                check(given, schemas[param], f"{where}: {name}: {param}")
        found.append(made)
    return found


def _batch(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        size = plain(value, "batch")
        check(size, SECTIONS["batch"]["size"], "batch")
        return {"size": size}
    made = plain({key: item for key, item in value.items() if key != "graph"}, "batch")
    if made.get("size") is not None:
        check(made["size"], SECTIONS["batch"]["size"], "batch['size']")
    if value.get("graph") is not None:
        made["graph"] = _graph("batch['graph']", value["graph"], BATCH_OPS, OPS)
    return made


def _outputs(value: Any) -> list[Any]:
    found = []
    for number, entry in enumerate(_entries("outputs", value, "field names")):
        made = plain(entry, f"outputs[{number}]")
        if not isinstance(made, str) and not (isinstance(made, dict) and len(made) == 1):
            raise errors.InvalidArgument(
                f"outputs[{number}] is {made!r}: it is a field's name, or a map such as "
                "{'boxes': {'max_rows': 128}}"
            )
        found.append(made)
    if not found:
        raise errors.InvalidArgument("outputs is empty: it is a list of field names")
    return found


def nearest_op(word: str) -> Optional[str]:
    """Return the op that another library calls so, or whose name is nearest; or None."""
    for names in KNOWN_AS.values():
        if word in names:
            return str(names[word])
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    close = difflib.get_close_matches(snake, sorted({**OPS, **BATCH_OPS}), 1, 0.7)
    return close[0] if close else None


def no_such_op(name: str) -> NoReturn:
    """Raise the error of a name that `feedwater.ops` does not have."""
    near = None if name.startswith("_") else nearest_op(name)
    cure = f"did you mean ops.{near}?" if near else "help(feedwater.ops) has them all"
    raise AttributeError(f"feedwater.ops has no op {name!r}: {cure}")


_Function = TypeVar("_Function", bound=Callable[..., Op])


def with_near_names(function: _Function) -> _Function:
    """Return a function of `feedwater.ops` that tells of an argument which it does not have."""
    known = list(signature(function).parameters)

    @wraps(function)
    def op(*args: Any, **given: Any) -> Op:
        for word in given:
            if word not in known:
                near = f"{word}_" if f"{word}_" in known else None
                near = near or next(iter(difflib.get_close_matches(word, known, 1)), None)
                cure = f"did you mean {near!r}?" if near else f"it has {', '.join(known)}"
                what = f"feedwater.ops.{function.__name__} has no argument {word!r}"
                raise TypeError(f"{what}: {cure}")
        return function(*args, **given)

    return op  # type: ignore[return-value]
