"""`from_torchvision`: the pipeline that does what a Compose of torchvision does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from . import errors
from ._pipeline_schema import OPS
from .pipeline import GraphEntry, Op, Pipeline
from .torchvision_transforms import (
    CONTAINERS,
    REQUIRED,
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
    if kind in _BY_CHANCE and _is_known(step):
        try:
            _BY_CHANCE[kind](translator, step)
        except errors.InvalidArgument as error:
            raise NoCounterpart(str(error)) from None
        return
    if kind not in TRANSFORMS or not _is_known(step):
        raise without_counterpart(_name(step), not _is_known(step))
    translate(translator, kind, _values(step, TRANSFORMS[kind].parameters))


def _name(step: Any) -> str:
    """Return what a transform is called: a function has a name of its own."""
    kind = type(step).__name__
    own = kind not in TRANSFORMS and callable(step)
    return str(getattr(step, "__name__", kind)) if own else kind


def _inner(translator: Translator, transform: Any, place: str = "") -> list[Op]:
    """Return the ops of transforms within one that does them by chance."""

    def work() -> None:
        for position, step in _steps(transform, place):
            try:
                _translate(translator, step)
            except NoCounterpart as reason:
                text = f"its transform {position}, {_name(step)}: {reason}"
                raise NoCounterpart(text, reason.nearest) from None

    return translator.apart(work)


def _apply(translator: Translator, step: Any) -> None:
    """RandomApply; as the op's own `p` where it is one op that has one."""
    made = _inner(translator, list(step.transforms))
    if not made:
        return
    own = OPS[made[0].name]["properties"].get("p", {})
    if len(made) == 1 and own.get("default") == 1.0 and "p" not in made[0].params:
        translator.ops.append(Op.make(made[0].name, {**made[0].params, "p": step.p}))
    else:
        translator.ops.append(translator.combined("apply", made, p=step.p))


def _alternatives(translator: Translator, step: Any) -> list[Optional[Op]]:
    """Return an op for each of the transforms that one chooses among; None does nothing."""
    alternatives: list[Optional[Op]] = []
    for number, transform in enumerate(step.transforms, 1):
        made = _inner(translator, transform, str(number))
        if len(made) > 1:
            made = [translator.combined("apply", made, p=1.0)]
        alternatives.append(made[0] if made else None)
    return alternatives


def _choice(translator: Translator, step: Any) -> None:
    """RandomChoice, whose probabilities version 2 has by another name."""
    weights = getattr(step, "probabilities", None) or getattr(step, "p", None) or ()
    weights = () if len(set(weights)) == 1 else tuple(float(weight) for weight in weights)
    made = []
    for number, op in enumerate(_alternatives(translator, step), 1):
        if op is None:
            raise NoCounterpart(f"its transform {number} does nothing here: give the op a `p`")
        made.append(op)
    translator.ops.append(translator.combined("one_of", made, weights=weights))


def _order(translator: Translator, step: Any) -> None:
    """RandomOrder."""
    made = [op for op in _alternatives(translator, step) if op is not None]
    if len(made) < 2:
        translator.ops.extend(made)
    else:
        translator.ops.append(translator.combined("some_of", made, n=len(made), order="random"))


_BY_CHANCE = {"RandomApply": _apply, "RandomChoice": _choice, "RandomOrder": _order}


def _values(transform: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transform's values by the names of its constructor's parameters."""
    values = {}
    for name, default in parameters.items():
        if name == "antialias":
            default = None  # what versions do on tensors that do not have it
        values[name] = getattr(transform, name, default)
        if values[name] is REQUIRED:
            raise NoCounterpart(f"it has no attribute {name!r}: is it torchvision's?")
    # RandomCrop of version 2 keeps it in another order than it takes it: left, right, top, bottom.
    kind = type(transform)
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
