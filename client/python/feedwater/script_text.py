"""The text of a Python script: read from its file within bounds, parsed, and cut into lines."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings

from . import errors

_MAX_BYTES = 1 << 20


def printable(text: str) -> str:
    """Return a text without characters that do something to a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def lines(text: str) -> list[str]:
    """Return the lines of a text, as Python counts them: form feeds and the like end none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def read(path: str) -> tuple[str, str]:
    """Return a script's text with line feeds, and what ends its lines."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise errors.InvalidArgument(f"no script {path}") from None
    except OSError as error:
        raise errors.InvalidArgument(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise errors.InvalidArgument(f"{path} is larger than {_MAX_BYTES >> 20} MiB")
    if b"\0" in data:
        raise errors.InvalidArgument(f"{path} is not a Python script: it has zero bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise errors.InvalidArgument(f"{path} is not a Python script: {error}") from None
    newline = "\r\n" if "\r\n" in text else "\n"
    return text.replace("\r\n", "\n").replace("\r", "\n"), newline


def parse(path: str, text: str) -> ast.Module:
    """Return what Python makes of a script's text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the script's escapes
            return ast.parse(text, os.path.basename(path))
    except SyntaxError as error:
        raise errors.InvalidArgument(
            f"{path}:{error.lineno or 1}:{error.offset or 1}: {error.msg}: the script must be one "
            "that Python takes"
        ) from None
    except (RecursionError, MemoryError):
        raise errors.InvalidArgument(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise errors.InvalidArgument(f"{path} is not a Python script: {error}") from None
