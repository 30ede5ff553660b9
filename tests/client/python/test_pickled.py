"""What other processes get of a user's dataset: the same, with large arrays in memory once."""

from __future__ import annotations

import functools
import mmap
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import own_datasets as own
import pytest

from feedwater import descriptors, errors, own_files
from feedwater.pickled import pickled, unpickled


def there_and_back(value):
    made = pickled(value, "dataset")
    try:
        return made, unpickled(made.fd, made.pieces)
    finally:
        descriptors.close(made.fd)


def test_arrays_are_in_memory_once_and_may_be_written():
    data = own.Numbers(shape=(1000, 100))
    made, got = there_and_back(data)
    assert made.modules == ["numpy._core.numeric", "own_datasets"] or "own_datasets" in made.modules
    assert not made.needs_main
    assert sum(size for _, size in made.pieces) < data.base.nbytes + 2000
    base = got.base
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert isinstance(getattr(base, "obj", base), mmap.mmap)
    got.base[0, 0] = 7
    assert (got.base[1:] == data.base[1:]).all() and data.base[0, 0] == 0


def test_a_mapped_file_is_mapped_again(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100_000))
    for array in (
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        np.load(tmp_path / "x.npy", mmap_mode="r+"),
    ):
        made, got = there_and_back([array])
        assert sum(size for _, size in made.pieces) < 2000
        assert isinstance(got[0], np.memmap) and (got[0] == np.arange(100_000)).all()
        part = array[10:20]  # a part is a copy: where it begins is not known
        assert (there_and_back([part])[1][0] == np.arange(10, 20)).all()


def test_what_was_written_over_a_mapped_file_is_kept(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100_000))
    array = np.load(tmp_path / "x.npy", mmap_mode="c")
    array[7] = -1
    made, got = there_and_back([array])
    assert isinstance(got[0], np.memmap) and got[0][7] == -1 and got[0][8] == 8
    assert 800_000 in [size for _, size in made.pieces]  # in memory once


def test_tensors_are_in_memory_once():
    torch = pytest.importorskip("torch")
    tensors = [torch.arange(1000.0), torch.arange(6).reshape(2, 3).T, torch.zeros(2).bfloat16()]
    made, got = there_and_back(tensors)
    assert all((one == two).all() and one.dtype == two.dtype for one, two in zip(tensors, got))
    assert 4000 in [size for _, size in made.pieces]


# --- what the digest covers -----------------------------------------------------------------------

PROGRAM = {
    "train.py": """
import multiprocessing, sys
from feedwater.pickled import pickled
from steps import (
    scale,  # by half
)
from parts import inner
class Parts:
    base = inner.scale
def aug(image):
    import late
    return late.shift(scale(image))
def digest():
    return pickled(aug, "function").digest
if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        ranks = multiprocessing.get_context("spawn").Pool(2)
        print(*{ranks.apply(digest) for _ in range(8)})
    else:
        print(digest())
""",
    "steps.py": "def scale(image): return image / 2\n",
    "late.py": "def shift(image): return image + 1\n",
    "parts/__init__.py": "def never():\n    from .. import nothing\n",
    "parts/inner.py": "from . import rest\nfrom .rest import (scale)\n",
    "parts/rest.py": "scale = 1\n",
    "unused.py": "",
}


def digest_of(folder, *arguments: str, **changed: str) -> str:
    """Run a program in a folder of its own, with files changed; return what it says."""
    for name, text in {**PROGRAM, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, folder / "train.py", *arguments], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.strip()


def test_code_of_the_same_name_that_does_something_else_has_another_digest(tmp_path):
    first = digest_of(tmp_path / "1")
    assert len(first.split()) == 1 and digest_of(tmp_path / "2") == first
    assert digest_of(tmp_path / "3", **{"unused.py": "else_ = 1\n"}) == first
    for number, (name, before, after) in enumerate(
        [
            ("train.py", "scale(image))", "image)"),
            ("steps.py", "/ 2", "/ 3"),
            ("late.py", "+ 1", "+ 2"),
            ("parts/inner.py", "\n", "\n\n"),
            ("parts/rest.py", "1", "2"),
        ]
    ):
        changed = {name: PROGRAM[name].replace(before, after)}
        assert changed[name] != PROGRAM[name]
        assert digest_of(tmp_path / f"changed {number}", **changed) != first, name


@pytest.mark.parametrize(
    "text",
    [
        "import os; import helper",
        "try: import helper\nexcept ImportError: pass",
        "if True: from helper import x",
        "import os, \\\n  helper",
        "from pkg import (a,  # the (old) one\n helper)",
        "from pkg import \\\n  helper",
        "class C:\n    def f(self):\n        for i in ():\n            pass\n"
        "        else:\n            with i: import pkg.helper as h",
        "import pkg.deep.inner",  # whose packages are imported, too
        "a = 1\nimport helper\nprint 'of Python 2'",
        "\0\nimport helper",
        "import helper\na = " + "(" * 5000,
        "import helper\na = " + "-" * 100_000 + "1",
        "import helper\n#" + "#" * (1 << 20),
    ],
)
def test_every_way_to_import_is_found(tmp_path, monkeypatch, text):
    monkeypatch.syspath_prepend(str(tmp_path))
    helpers = ["helper.py", "pkg/helper.py", "pkg/__init__.py", "pkg/deep/__init__.py"]
    for name in [*helpers, "pkg/deep/inner.py", "pkg/a.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "begins.py").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {os.path.relpath(path, tmp_path) for path in own_files.files_of(["begins"])}
    if "inner" in text:
        assert found == {
            "begins.py",
            "pkg/__init__.py",
            "pkg/deep/__init__.py",
            "pkg/deep/inner.py",
        }
    elif "pkg" in text:
        assert found - {"pkg/a.py"} == {"begins.py", "pkg/__init__.py", "pkg/helper.py"}
    else:
        assert found == {"begins.py", "helper.py"}


@pytest.mark.parametrize("test", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_what_only_a_type_checker_imports_is_left_out(tmp_path, monkeypatch, test):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("hinted", "falls_back", "inner"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "checked.py").write_text(
        f"if {test}:\n    import hinted\nelse:\n    import falls_back\n"
        "def f():\n    if flag.TYPE_CHECKING:\n        import inner\n"
    )
    found = {os.path.basename(path) for path in own_files.files_of(["checked"])}
    assert found == {"checked.py", "falls_back.py", "inner.py"}


def test_the_packages_in_which_code_lies_belong_to_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine" / "ops").mkdir(parents=True)
    for name in ("mine/__init__.py", "mine/ops/__init__.py", "mine/ops/aug.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    files = own_files.files_of(["mine.ops.aug"])
    assert len(files) == 3
    assert own_files.changed_since(files) == []
    (tmp_path / "mine/__init__.py").write_text("scale = 2\n")
    (tmp_path / "mine/ops/aug.py").unlink()  # unpickling says so
    assert own_files.changed_since(files) == [str(tmp_path / "mine/__init__.py")]


def test_a_program_that_is_run_as_a_module_has_the_files_of_its_package(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text(
        "from feedwater.pickled import pickled\n"
        "def aug(image): return image\n"
        "print(sorted(path.rpartition('/')[2] for path in pickled(aug, 'function').files))\n"
    )
    (tmp_path / "mine/__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "mine.train"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "['__init__.py', 'train.py']\n"


def test_spawned_processes_of_one_program_have_one_digest(tmp_path):
    assert len(digest_of(tmp_path, "spawn").split()) == 1


class Holder:
    def __init__(self, part) -> None:
        self.parts = {"a": [1, part]}


@pytest.mark.parametrize(
    "make, text",
    [
        (threading.Lock, r"dataset\.parts\['a'\]\[1\] \(_thread.lock\).*make it in __getitem__"),
        (lambda: open("/dev/null"), r"parts\['a'\]\[1\] \(_io.TextIOWrapper\).*open it in"),  # noqa: SIM115
        (lambda: functools.partial(threading.Lock().acquire), r"\[1\]\.func"),
        (lambda: (i for i in range(3)), r"\[1\] \(builtins.generator\)"),
    ],
)
def test_what_cannot_be_pickled_is_named_with_its_place_and_the_cure(make, text):
    with pytest.raises(errors.InvalidArgument, match=text):
        pickled(Holder(make()), "dataset")
