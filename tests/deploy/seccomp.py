"""Runs a program under a list of system-call rules, as systemd and container engines do.

    python seccomp.py RULES.json PROGRAM [ARGUMENT ...]

The rules are those of an engine's profile: defaultAction, defaultErrnoRet, and syscalls with names,
action, errnoRet and args. Calls that this machine's libseccomp does not know are passed over.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_ALLOW = 0x7FFF0000
_OPERATORS = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
_BAD_ARCHITECTURE_ALLOWS = (2, _ALLOW)  # SCMP_FLTATR_ACT_BADARCH: 32-bit programs are not the point


class _Compare(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def _action(name: str, errno: int) -> int:
    return {"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": 0x00050000 | errno}[name]


def library() -> ctypes.CDLL:
    """Return libseccomp; OSError where it is not installed."""
    found = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    found.seccomp_init.restype = ctypes.c_void_p
    found.seccomp_init.argtypes = [ctypes.c_uint32]
    found.seccomp_load.argtypes = [ctypes.c_void_p]
    found.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    found.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Compare),
    ]  # fmt: skip
    return found


def load(rules: dict) -> None:
    """Put this process and what it becomes under the rules, for good."""
    seccomp = library()
    default = _action(rules["defaultAction"], rules.get("defaultErrnoRet", 1))
    context = seccomp.seccomp_init(default)
    seccomp.seccomp_attr_set(context, *_BAD_ARCHITECTURE_ALLOWS)
    for rule in rules["syscalls"]:
        action = _action(rule["action"], rule.get("errnoRet", 1))
        if action == default:
            continue
        compares = [
            _Compare(a["index"], _OPERATORS[a["op"]], a["value"], a.get("valueTwo", 0))
            for a in rule.get("args", [])
        ]
        array = (_Compare * len(compares))(*compares)
        for name in rule["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            if number == -1:
                continue
            failed = seccomp.seccomp_rule_add_array(context, action, number, len(compares), array)
            if failed and number >= 0:  # below 0: calls of other architectures
                raise OSError(-failed, f"seccomp_rule_add of {name}")
    if failed := seccomp.seccomp_load(context):
        raise OSError(-failed, "seccomp_load")


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        load(json.load(file))
    os.execv(sys.argv[2], sys.argv[2:])
