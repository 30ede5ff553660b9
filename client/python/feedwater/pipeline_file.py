"""The pipeline argument of a loader: a name, a file whose text is sent, or a `Pipeline`."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional, Union

from . import errors
from .pipeline import MAX_YAML, Pipeline


class PipelineSource(NamedTuple):
    """What a loader sends of its pipeline."""

    name: str
    text: Optional[str]  # None for a pipeline that the daemon knows
    file_name: str


def show_line(error: errors.Error, file_name: str, text: str) -> None:
    """Add the line that an error is about, where the text is of no file that could be opened."""
    if not file_name.startswith("<"):
        return
    found = re.search(re.escape(file_name) + r":(\d+):(\d+)", str(error))
    if found is None:
        return
    number, column = (int(group) for group in found.groups())
    lines = text.split("\n")
    if 1 <= number <= len(lines):
        margin = f"  {number} | "
        mark = " " * (len(margin) + column - 1)
        error.args = (f"{error}\n{margin}{lines[number - 1]}\n{mark}^",)


def read_pipeline(
    pipeline: Union[str, os.PathLike[str], Pipeline, PipelineSource],
) -> PipelineSource:
    """Return what is sent of a pipeline. What was read before stays as it is."""
    if isinstance(pipeline, PipelineSource):
        return pipeline
    if isinstance(pipeline, Pipeline):
        return PipelineSource(pipeline.name, pipeline.to_yaml(), f"<{pipeline.name}>")
    try:
        path = os.fspath(pipeline)
    except TypeError:
        raise errors.InvalidArgument(
            f"pipeline is of type {type(pipeline).__name__}: it is a name or the path of a .yaml "
            "file, whose 'dataset:' says what is read, or a feedwater.Pipeline"
        ) from None
    if not isinstance(path, str):
        path = os.fsdecode(path)
    is_path = not isinstance(pipeline, str) or os.sep in path or path.endswith((".yaml", ".yml"))
    if is_path and os.path.isdir(path):
        raise errors.InvalidArgument(
            f"{path} is a folder: give the name of a pipeline that the daemon knows, or a .yaml "
            "file, whose 'dataset: {format: ..., root: ..., path: ...}' says which folder to read"
        )
    if not is_path:
        return PipelineSource(path, None, "")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_YAML + 1)
    except FileNotFoundError:
        raise errors.NotFound(f"no pipeline file {path}") from None
    except PermissionError:
        raise errors.PermissionDenied(f"cannot read the pipeline file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidArgument(f"cannot read the pipeline file {path}: {error}") from None
    if len(text.encode()) > MAX_YAML:
        raise errors.InvalidArgument(
            f"the pipeline file {path} is larger than {MAX_YAML >> 10} KiB"
        )
    name = os.path.splitext(os.path.basename(path))[0]
    return PipelineSource(name, text, path)
