"""What `Loader.from_dataset` does before it opens a loader.

It serves the dataset where the loader will find it, and writes the pipeline that reads it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, Optional, Union

from ._pipeline_schema import BATCH_OPS, OPS
from .address import APPEARS_S
from .arguments import OF_A_DATASET, integer, refuse_arguments
from .errors import BAD_SAMPLE_CURE, BadSample, FailedPrecondition, InvalidArgument
from .fork_server import check_guarded
from .ordinals import Ordinal
from .pipeline import GraphEntry, Op, Pipeline
from .placement import is_apart, placement, process_key
from .private import key_of
from .samples import FieldNames, SampleField, described
from .served import Served, length_of, offer_of, serve
from .stream import check_timeout
from .which_daemon import choose_daemon

_log = logging.getLogger("feedwater")


def serve_for_loader(
    dataset: Any,
    options: dict[str, Any],
    known: Set[str],
    *,
    workers: int,
    fields: Optional[FieldNames],
    timeout: float,
    version: str,
    seeded: bool,
    length: Optional[int],
    shuffle: Optional[bool],
) -> tuple[Served, Ordinal, dict[str, Any]]:
    """Serve a dataset at the daemon that a loader with these options uses.

    Returns
    -------
    tuple
        What is served, the number in its name, which is to be given back if there will be no
        loader, and the options with which the loader finds the same daemon.
    """
    check_guarded()  # before anything is started
    refuse_arguments((), options, known, OF_A_DATASET, "feedwater.Loader.from_dataset")
    length = length_of(dataset, length)
    if length is not None and shuffle:
        raise InvalidArgument(
            "shuffle=True: an iterable dataset makes its samples one after the other. Cure: leave "
            "it out, and shuffle in __iter__, or in the files that it reads"
        )
    rank, world_size = (integer(name, options.get(name)) for name in ("rank", "world_size"))
    place, job = placement(rank, world_size), options.get("job")
    address, daemon = choose_daemon(
        options.get("address"),
        options.get("daemon", "auto"),
        options.get("cpus"),
        options.get("memory"),
        place,
        job,
        is_name=False,
        patience=min(APPEARS_S, check_timeout(options.get("reconnect_timeout", 60.0))),
    )
    ordinal = None
    try:
        is_alone = job is None and is_apart(rank is not None, place)
        key = f"apart/{process_key()}" if is_alone else f"{key_of(place, job)}/{job}"
        name = _name_of(dataset, key)
        ordinal = Ordinal.take("source", name)
        offer = offer_of(f"{name}-{ordinal.number}", version, False, workers, timeout)
        offer.seeded, offer.fields = bool(seeded), fields
        offer.length, offer.rank, offer.world_size = length, place.rank, place.world_size
        if length is not None and length < place.world_size:
            raise InvalidArgument(
                f"length={length} with world size {place.world_size}: each rank has a sample of "
                "its own at least. Cure: a larger length=, of all ranks together, or fewer ranks"
            )
        served = serve(offer, dataset, address, daemon)
    except BaseException:
        if ordinal is not None:
            ordinal.give_back()
        if daemon is not None:
            daemon.release()
        raise
    return served, ordinal, options if daemon is not None else {**options, "address": address}


def _name_of(dataset: Any, key: str) -> str:
    """Return the name of a dataset, to which the loader's number is added: the same in all ranks of
    a job.
    """
    kind = kind_of(dataset)
    mark = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"{kind}-{mark}"


def kind_of(dataset: Any) -> str:
    """Return the name of a dataset's class, as pipelines may be called."""
    return re.sub(r"\W", "_", type(dataset).__qualname__.rpartition(".")[2], flags=re.ASCII)[:32]


def pipeline_of(
    dataset: Any,
    served: Served,
    *,
    shuffle: Optional[bool],
    drop_last: bool,
    graph: Optional[Sequence[GraphEntry]],
    outputs: Optional[Sequence[Union[str, Mapping[str, Any]]]],
    on_bad_sample: Optional[str],
    max_bad_fraction: Optional[float],
) -> Pipeline:
    """Return the pipeline that reads what is served."""
    names = outputs or _outputs(served.fields, graph or ())
    if on_bad_sample == "skip_with_count" and "is_real" not in names:
        _log.warning(
            'Loader.from_dataset: on_bad_sample="skip_with_count" without is_real: batches keep '
            "their size, and do not tell which of their samples stand for bad ones. Cure: "
            "outputs=[%s, 'is_real'], and leave out of the loss what is not real",
            ", ".join(map(repr, names)),
        )
    return Pipeline(
        dataset={"format": "python", "name": served.name},
        sampler={
            "shuffle": "full"
            if shuffle or (shuffle is None and not served.is_iterable)
            else "none",
            "last": "drop" if drop_last else "partial",
            # The samples of a rank's own processes (provider.Offer.share_of).
            **({"shard": "interleave"} if served.is_iterable else {}),
        },
        graph=graph,
        outputs=names,
        on_bad_sample=on_bad_sample,
        max_bad_fraction=max_bad_fraction,
        name=kind_of(dataset),
    )


_OF_BYTES = (
    "bytes in a sample are taken for an encoded image. Where they are none, give "
    "np.frombuffer(data, np.uint8), or say outputs=[{'NAME': {'max_rows': MOST_BYTES}}, ...]"
)


_RAISE_FRACTION = "raise max_bad_fraction in the pipeline"
_CURE = '. Mend or remove it, or say on_bad_sample="substitute" or "skip_with_count"'


def explained(error: InvalidArgument, served: Served) -> InvalidArgument:
    """Return what is wrong with a pipeline that `pipeline_of` wrote, in words of its arguments."""
    text = re.sub(r"\A<[^>]*>:\d+:\d+: ", "", str(error)).partition("\n")[0]
    fields = ", ".join(f"{one.name} ({described(one.dtype, one.shape)})" for one in served.fields)
    bytes_of_image = re.search(r"'(\w+)' is a compressed image", text)
    if bytes_of_image is not None:
        name = bytes_of_image[1]
        decode = f"ops.decode({_in(name, 'data').removeprefix(', ')})"
        text = (
            f"{text.partition(': decode it')[0]}. With graph=[{decode}, ...] the daemon "
            f"decodes it; {_OF_BYTES}"
        )
    text = _with_names(text, served.fields)
    text = re.sub(
        r"\A'(\w+)' has no fixed size .*?: add resize with size \[h, w\]",
        lambda found: f"{found[0]} (graph=[ops.resize([h, w]{_in(found[1], 'image')})])",
        text,
    )
    names = "" if "; fields=[" in text else ", and fields=[...] gives them other names"
    return InvalidArgument(
        f"Loader.from_dataset: {text}. The dataset has {fields}; graph= and outputs= name "
        f"these{names}"
    )


def _in(field: str, default: str) -> str:
    """Return the argument that lets an op read a field, where it reads `default` by itself."""
    return "" if field == default else f', in_="{field}"'


def _with_names(text: str, fields: Sequence[SampleField]) -> str:
    """Return an error with the `fields=` that gives the values the name that the graph reads.

    The daemon's own proposal names bytes and labels; a picture is known here, and names that the
    fields have already are no cure.
    """
    found = re.search(r"; fields=(\[[^]]*\]) where the dataset is served gives .* names\Z", text)
    wanted = re.search(r"unknown field '(\w+)'", text)
    if found is None or wanted is None:
        return text
    names, has_label = [one.name for one in fields], any(one.name == "label" for one in fields)
    is_picture = wanted[1] == "image" and "image" not in names
    for place, one in enumerate(fields):
        if not re.match(r"field\d", one.name):
            continue
        if is_picture and one.layout == "HWC":
            names[place], is_picture = "image", False
        elif not has_label and (one.dtype, one.shape) == ("int64", ()):
            names[place], has_label = "label", True
    if "image" in names and wanted[1] == "image":
        return f"{text[: found.start()]}; fields={json.dumps(names)} gives its values names"
    proposed = json.loads(found[1])
    is_cure = proposed != [one.name for one in fields] and {"data", wanted[1]} & set(proposed)
    return text if is_cure else text[: found.start()]


def in_its_words(error: BadSample) -> str:
    """Return what is wrong with a sample of such a dataset, in words of its loader's arguments."""
    text = str(error)
    if text.endswith(BAD_SAMPLE_CURE):
        text = text.removesuffix(BAD_SAMPLE_CURE) + _CURE
    text = text.replace(_RAISE_FRACTION, "give from_dataset a larger max_bad_fraction=", 1)
    return text + (f" ({_OF_BYTES})" if "not an image of a known format" in error.reason else "")


_OTHER_SOURCE = "give this rank the same source, or another job name"


def of_late_group(error: FailedPrecondition) -> str:
    """Return why a loader that was made before the process group has no place in it, with the cure
    where that is its dataset, which is served under a name of the process's own.
    """
    return str(error).replace(
        _OTHER_SOURCE,
        "this loader was made before the process group, so its dataset is served for this process "
        "alone. Cure: make it after the group is initialised, or give rank, world_size and job",
    )


def _outputs(fields: Sequence[SampleField], graph: Sequence[GraphEntry]) -> list[str]:
    """Return the fields in their order; in place of one that the graph reads, what it makes."""
    names = [field.name for field in fields]
    for entry in graph:
        plain = entry.to_plain() if isinstance(entry, Op) else entry
        name, params = next(iter(plain.items())) if isinstance(plain, Mapping) else (plain, None)
        is_own = isinstance(name, str) and name not in {**OPS, **BATCH_OPS}
        if is_own and not {"in", "out"} <= set(params or ()):
            raise InvalidArgument(
                f"Loader.from_dataset: say outputs=, or in and out, for op {name!r}: it is not "
                "built in, so what it reads and makes is not known here"
            )
        ports = OPS.get(name, {}).get("properties", {})
        given = {key: port.get("default") for key, port in ports.items() if key in ("in", "out")}
        given.update(params or {})
        read = _list(given.get("in"))
        made = _list(given.get("out")) or read
        for before, after in zip(read, made):
            if before in names:
                names[names.index(before)] = after
        names += [one for one in made[len(read) :] if one not in names]
    return list(dict.fromkeys(names))


def _list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())
