"""`from_torchvision`: the pipeline that does what a Compose of torchvision does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from . import errors
from .pipeline import GraphEntry, Pipeline
from .torchvision_chance import BY_CHANCE, ByChance
from .torchvision_transforms import (
    CONTAINERS,
    OLD_NAMES,
    TRANSFORMS,
    NoCounterpart,
    Translator,
    image_field,
    told,
    translate,
    without_counterpart,
)
from .units import count_of

_UNLABELLED = ("array_record", "images")
# Attributes that classes of older versions do not have, and what these do without.
_NEWER = {"antialias": None, "inplace": False, "max_size": None, "mode": None}


def _steps(transform: Any, position: str) -> Iterable[tuple[str, Any]]:
    """Yield transforms with their places, those of containers in their order."""
    name = type(transform).__name__
    if name in CONTAINERS and _is_known(transform):
        inner = transform.transforms if name == "Compose" else list(transform)
    elif isinstance(transform, (list, tuple)):
        inner = transform
    else:
        yield position or "1", transform
        return
    for number, item in enumerate(inner, 1):
        yield from _steps(item, f"{position}.{number}" if position else str(number))


def _is_known(transform: Any) -> bool:
    module = type(transform).__module__
    return module.startswith(("torchvision.transforms.", "torch.nn.modules."))


def _translate(translator: Translator, step: Any) -> None:
    """Translate one transform; raise NoCounterpart."""
    kind = type(step).__name__
    if kind in BY_CHANCE and _is_known(step):
        # Version 2 once had RandomChoice's `p` by another name.
        p = getattr(step, "probabilities", None) or getattr(step, "p", None)
        _ByChance(translator).translate(kind, list(step.transforms), {"p": p})
        return
    if kind not in TRANSFORMS or not _is_known(step):
        raise without_counterpart(_name(step), not _is_known(step))
    translate(translator, kind, _values(step, TRANSFORMS[kind].parameters))


def _name(step: Any) -> str:
    """Return what a transform is called: a function has a name of its own."""
    kind = type(step).__name__
    own = kind not in TRANSFORMS and callable(step)
    return str(getattr(step, "__name__", kind)) if own else kind


class _ByChance(ByChance):
    """That of transforms that are objects."""

    def _steps(self, transform: Any, place: str) -> Iterable[tuple[str, Any]]:
        return _steps(transform, place)

    def _translate(self, step: Any) -> None:
        _translate(self._translator, step)

    def _name(self, step: Any) -> str:
        return _name(step)


def _values(transform: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transform's values by the names of its constructor's parameters."""
    kind = type(transform)
    old = {new: name for name, new in OLD_NAMES.get(kind.__name__, {}).items()}
    values = {}
    for name in parameters:
        if hasattr(transform, name):
            values[name] = getattr(transform, name)
        elif hasattr(transform, old.get(name, name)):
            values[name] = getattr(transform, old[name])
        elif name in _NEWER:
            values[name] = _NEWER[name]
        else:
            raise NoCounterpart(f"it has no attribute {name!r}: is it torchvision's?")
    # RandomCrop of version 2 keeps it in another order than it takes it: left, right, top, bottom.
    is_kept_otherwise = kind.__name__ == "RandomCrop" and ".v2." in kind.__module__
    if is_kept_otherwise and values.get("padding") is not None:
        left, right, top, bottom = values["padding"]
        values["padding"] = [left, top, right, bottom]
    return values


def from_torchvision(
    transform: Any,
    *,
    dataset: Mapping[str, Any],
    batch_size: Optional[int] = None,
    sampler: Optional[Mapping[str, Any]] = None,
    outputs: Optional[Sequence[Union[str, Mapping[str, Any]]]] = None,
    image: Optional[str] = None,
    decode: Optional[bool] = None,
    on_bad_sample: Optional[str] = None,
    cache: Optional[Mapping[str, Any]] = None,
    name: str = "Pipeline",
) -> Pipeline:
    """Return the Pipeline that does what a transform of torchvision does.

    Each transform becomes the op that does the same: pixels are decoded, cut and resampled as by
    torchvision, most values within one of its own. ToTensor, ToDtype and Normalize become
    one `normalize`, with mean and std in units of 0..255. ColorJitter and Grayscale compute as on
    Pillow's images; on tensors torchvision itself differs from that by a few steps of 255. What is
    drawn at random is drawn from the same distributions, not with torch's numbers.

    Parameters
    ----------
    transform : transform of torchvision.transforms or torchvision.transforms.v2
        A Compose (also of Composes), one transform, a list, or a model's ``weights.transforms()``.
    dataset : mapping
        The pipeline's ``dataset``: ``{"format": "image_folder", "root": "photos"}``.
    batch_size : int, optional
        Samples of a rank's batch.
    sampler, outputs, on_bad_sample, cache, name : optional
        As of `Pipeline`.
    image : str, optional
        The dataset's field that has the image. Known of formats that always have one.
    decode : bool, optional
        Whether that field has the bytes of an image file, which `decode` then reads. Known as well.

    Raises
    ------
    InvalidArgument
        Transforms that have no exact counterpart: each with its place, counted from 1, the reason,
        the nearest op, and what to do.

    Examples
    --------
    >>> pipeline = feedwater.from_torchvision(
    ...     train_dataset.transform,
    ...     dataset={"format": "image_folder", "root": "imagenet", "path": "train"},
    ...     sampler={"shuffle": "full"},
    ...     batch_size=256,
    ... )
    >>> loader = feedwater.Loader(pipeline)
    """
    if not isinstance(dataset, Mapping):
        raise errors.InvalidArgument(
            f"dataset is {dataset!r}: it is a map such as "
            "{'format': 'image_folder', 'root': 'photos'}"
        )
    translator = Translator(*image_field(dataset, image, decode))
    problems = []
    steps = list(_steps(transform, ""))
    for position, step in steps:
        try:
            _translate(translator, step)
        except NoCounterpart as reason:
            problems.append("  " + told(f"transform {position}, {_name(step)}", reason))
    if problems:
        raise errors.InvalidArgument(
            f"{len(problems)} of {count_of(len(steps), 'transform')} have no exact counterpart:\n"
            + "\n".join(problems)
            + "\nLeave them out, or write the graph as feedwater.Pipeline(graph=[...]) with the "
            "nearest op if its effect is enough"
        )
    graph: list[GraphEntry] = list(translator.finish())
    if outputs is None:
        outputs = [translator.field, *([] if _has_no_label(dataset) else ["label"])]
    return Pipeline(
        dataset=dataset,
        sampler=sampler,
        graph=graph,
        batch=batch_size,
        outputs=outputs,
        on_bad_sample=on_bad_sample,
        cache=cache,
        name=name,
    )


def _has_no_label(dataset: Mapping[str, Any]) -> bool:
    return dataset.get("format") in _UNLABELLED
