"""What may stand in a pipeline that is written in Python: plain values, and those that the schema
of pipeline files allows for a key.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

from . import errors

_DEEPEST = 32


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return the value as maps, lists, texts, numbers, truth values and None.

    Ops give their own form (`Op.to_plain`); NumPy's numbers and arrays become Python's.
    """
    if depth > _DEEPEST:
        raise errors.InvalidArgument(f"{where} is nested more than {_DEEPEST} levels deep")
    if value is None or isinstance(value, (bool, str)):
        return _text(value, where) if isinstance(value, str) else value
    if hasattr(value, "to_plain"):
        return value.to_plain()
    if isinstance(value, Mapping):
        found = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise errors.InvalidArgument(f"{where} has the key {key!r}: keys are words")
            found[_text(key, where)] = plain(item, f"{where}[{key!r}]", depth + 1)
        return found
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise errors.InvalidArgument(f"{where} is {value!r}: it is a finite number")
        return float(value)
    if isinstance(value, os.PathLike):
        return _text(os.fsdecode(os.fspath(value)), where)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return plain(value.tolist(), where, depth + 1)
    raise errors.InvalidArgument(
        f"{where} is of type {type(value).__name__}: a pipeline is made of maps, lists, texts, "
        "numbers and feedwater.ops"
    )


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise errors.InvalidArgument(f"{where} is {value!r}: a pipeline file is UTF-8") from None
    return str(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES = {
    "integer": _is_integer,
    "number": lambda value: _is_integer(value) or isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _types(schema: Mapping[str, Any]) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a plain value is what a schema allows; of JSON Schema, what ours uses."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return any(fits(value, part) for part in schema[key])
    if "enum" in schema:
        return any(type(value) is type(one) and value == one for one in schema["enum"])
    types = _types(schema)
    if types and not any(_TYPES[name](value) for name in types):
        return False
    if isinstance(value, str):
        return "pattern" not in schema or re.search(schema["pattern"], value) is not None
    if isinstance(value, list):
        few, many = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        items = schema.get("items", {})
        return few <= len(value) <= many and all(fits(item, items) for item in value)
    if _TYPES["number"](value):
        return schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    return True


def expected(schema: Mapping[str, Any]) -> str:
    """Say in words what a schema allows."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(map(expected, schema[key]))
    if "enum" in schema:
        return (
            ", ".join(map(repr, schema["enum"][:-1]))
            + " or " * (len(schema["enum"]) > 1)
            + repr(schema["enum"][-1])
        )
    return " or ".join(_expected(name, schema) for name in _types(schema) if name != "null")


def _bound(bound: float) -> str:
    """Return the shortest text that reads back as the number, a whole one without a point."""
    return repr(bound).removesuffix(".0")


def _expected(name: str, schema: Mapping[str, Any]) -> str:
    if name in ("integer", "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        what = "an integer" if name == "integer" else "a number"
        if low is not None and high is not None:
            return f"{what} from {_bound(low)} to {_bound(high)}"
        return what if low is None else f"{what} from {_bound(low)}"
    if name == "array":
        few, many = schema.get("minItems", 0), schema.get("maxItems")
        count = f" of {few}" if few == many else ""
        return f"a list{count}, each {expected(schema.get('items', {})) or 'anything'}"
    return {"boolean": "True or False", "string": "a text", "object": "a map"}[name]


def check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    """Raise InvalidArgument, with the place and what is allowed, for a value that does not fit."""
    if not fits(value, schema):
        raise errors.InvalidArgument(f"{where} is {value!r}: it is {expected(schema)}")
