"""What `import feedwater` gives, and what it leaves alone until somebody asks for it."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import feedwater


def test_all_names_are_there():
    assert set(feedwater.__all__) <= set(dir(feedwater))
    for name in feedwater.__all__:
        found = getattr(feedwater, name)
        assert getattr(found, "__name__", name).rpartition(".")[2] == name
    assert feedwater.Loader is feedwater.loader.Loader
    assert pickle.loads(pickle.dumps(feedwater.Loader)) is feedwater.Loader
    with pytest.raises(AttributeError, match="module 'feedwater' has no attribute 'nothing'"):
        feedwater.nothing  # noqa: B018
    with pytest.raises(ImportError, match="nothing"):
        from feedwater import nothing  # noqa: F401


@pytest.mark.parametrize(
    "text, others",
    [
        ("import feedwater", ["grpc", "google.protobuf", "numpy"]),
        ("import feedwater.fork_server", ["grpc", "google.protobuf", "feedwater.loader"]),
    ],
)
def test_what_nobody_asked_for_is_not_imported(text, others):
    text += f"\nimport sys; print([name for name in {others} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_names_can_be_imported_at_once():
    text = "from feedwater import *; print(Loader.__name__, serve_op.__name__, ops.resize.__name__)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "Loader serve_op resize\n", done.stderr
