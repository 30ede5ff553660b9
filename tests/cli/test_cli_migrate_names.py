"""feedwater migrate: whose a class is by the imports, and which arguments it takes."""

from __future__ import annotations

import sys

import pytest
from migration import head, migrate, translated, write

PIL = "from PIL import Image\n"


def over(steps: str) -> str:
    return f"loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose([{steps}])))\n"


ARGUMENTS = {
    "a filter by its old name": (
        "transforms.RandomRotation(10, resample=Image.BILINEAR)",
        {"random_rotation": {"degrees": 10, "interpolation": "bilinear"}},
    ),
    "no filter by its old name": (
        "transforms.RandomRotation(10, resample=False)", {"random_rotation": {"degrees": 10}}
    ),
    "a colour by its old name": (
        "transforms.RandomAffine(10, resample=Image.BILINEAR, fillcolor=255)",
        {"random_affine": {"degrees": 10, "interpolation": "bilinear", "fill": [255.0]}},
    ),
    "weights by their old name": (
        "transforms.RandomChoice([transforms.RandomInvert(), transforms.RandomEqualize()], "
        "probabilities=[1, 3])",
        {"one_of": {"weights": [1.0, 3.0], "ops": ["random_invert", "random_equalize"]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("step", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_by_their_old_names_are_taken(project, step, expected):
    found = translated(project, PIL + over(step))
    assert found["graph"][1] == expected and not found["notes"]["untranslated"]


UNKNOWN = {
    "of no version": ("transforms.Resize(9, foo=1)", "argument 'foo' is not known"),
    "of the op": ("transforms.RandomErasing(p=0.5, noise=3)", "argument 'noise' is not known"),
    "by chance": ("transforms.RandomApply([transforms.RandomInvert()], q=1)", "argument 'q' is"),
    "twice": (
        "transforms.RandomRotation(9, Image.BILINEAR, resample=0)", "argument 'resample' is not"
    ),
    "a filter that no op has": (
        "transforms.RandomRotation(10, resample=Image.BICUBIC)", "random_rotation: interpolation is"
    ),
    "of a Compose": (
        "transforms.Compose([transforms.RandomInvert()], p=0.5)", "Compose([transforms.RandomInv"
    ),
    "two of a Compose": (
        "transforms.Compose([transforms.RandomInvert()], [transforms.RandomEqualize()])", "Compose("
    ),
    "of a Sequential": ("torch.nn.Sequential(first=transforms.RandomInvert())", "Sequential(f"),
}  # fmt: skip


@pytest.mark.parametrize(("step", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_arguments_that_are_not_known_are_refused(project, step, message):
    done = migrate(write(project.folder, head(PIL + over(step))), "--json").document
    texts = [told["text"] for told in done["untranslated"]]
    assert done["diff"] == "" and any(message in text for text in texts), texts


FOREIGN = {
    "of a package": "import monai.transforms as mine\n",
    "of a module": "from mine import Compose\nimport mine\n",
    "of a module beside it": "from .mine import Compose\nfrom . import mine\n",
}  # fmt: skip


@pytest.mark.parametrize("imports", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("kind", ["Compose", "Sequential"])
def test_a_foreign_compose_is_not_torchvisions(project, imports, kind):
    body = (
        imports + f"tf = mine.{kind}([transforms.ToTensor()], p=0.5)\n"
        "loader = DataLoader(datasets.ImageFolder('/d/x', tf))\n"
        "first = DataLoader(datasets.ImageFolder('/d/y', transforms.Compose([tf])))\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == ""
    texts = [told["text"] for told in done["untranslated"]]
    assert sum("a class or function of the program's own" in text for text in texts) == 2


@pytest.mark.parametrize("steps", [
    "transforms.Compose(transforms=[transforms.ToTensor()])",
    "torch.nn.Sequential(transforms.ToTensor())",
    "torch.nn.modules.container.Sequential(transforms.ToTensor())",
])  # fmt: skip
def test_torchs_own_are(project, steps):
    found = translated(project, over(steps))
    assert not found["notes"]["untranslated"] and len(found["graph"]) == 2


TWICE = {
    "a class, the last one": (
        "try:\n    from mine import Compose\nexcept ImportError:\n"
        "    from torchvision.transforms import Compose\n",
        "Compose([transforms.ToTensor()])", "Compose is imported as mine.Compose and as torchvisi",
    ),
    "a class, the first one": (
        "try:\n    from torchvision.transforms import Compose\nexcept ImportError:\n"
        "    from mine import Compose\n",
        "Compose([transforms.ToTensor()])", "Compose is imported as torchvision.transforms.Compo",
    ),
    "a class of a module beside it": (
        "from torchvision.transforms import Compose\nfrom .mine import Compose\n",
        "Compose([transforms.ToTensor()])", "Compose is imported as torchvision.transforms.Compo",
    ),
    "a module": (
        "if x:\n    import mine as T\nelse:\n    import torchvision.transforms as T\n",
        "T.Compose([T.ToTensor()])", "T is imported as mine and as torchvision.transforms: only",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("imports", "transform", "message"), TWICE.values(), ids=TWICE)
def test_a_name_that_two_modules_give_is_not_known(project, imports, transform, message):
    body = f"{imports}loader = DataLoader(datasets.ImageFolder('/d/x', {transform}))\n"
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 1 and done.document["diff"] == ""
    texts = [told["text"] for told in done.document["untranslated"]]
    assert any(message in text for text in texts), texts


def test_a_loader_that_two_modules_give_is_told(project):
    body = (
        "try:\n    from mine import DataLoader\nexcept ImportError:\n    pass\n"
        "loader = DataLoader(datasets.ImageFolder('/d/x', transforms.ToTensor()))\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] == {}
    assert any("DataLoader is imported as torch.utils.data.DataLoader and as mine.DataLoader"
               in told["text"] for told in done["untranslated"])  # fmt: skip


def test_one_thing_that_is_imported_twice_is_known(project):
    body = (
        "import torchvision.transforms as transforms\nfrom torch import nn\nimport torch.nn as nn\n"
        "try:\n    import cPickle as pickle\nexcept ImportError:\n    import pickle\n"
        "print(pickle)\n" + over("nn.Sequential(transforms.ToTensor())")
    )
    assert not translated(project, body)["notes"]["untranslated"]


def test_names_of_two_star_imports_are_not_known(project):
    for other in ("from mine import *\n", "from .mine import *\n"):
        body = (
            f"from torchvision.transforms import *\n{other}"
            "loader = DataLoader(datasets.ImageFolder('/d/x', Compose([ToTensor()])))\n"
        )
        path = project.folder / "train.py"
        path.unlink(missing_ok=True)
        assert migrate(write(project.folder, head(body)), "--json").document["diff"] == ""


STARS = {
    "of a package": "from mylib import *\n",
    "of a module beside it": "from .mylib import *\n",
    "in a branch": "try:\n    from mylib import *\nexcept ImportError:\n    pass\n",
    "of what is named like torch": "from torchlike import *\n",
}


@pytest.mark.parametrize("star", STARS.values(), ids=STARS)
def test_a_star_import_may_replace_what_was_imported_before_it(project, star):
    loader = over("transforms.ToTensor()")
    done = migrate(write(project.folder, head(star + loader)), "--json").document
    assert done["diff"] == "" and done["files"] == {}
    texts = [told["text"] for told in done["untranslated"]]
    for name in ("DataLoader", "datasets", "transforms"):
        assert any(f"{name} may be replaced by `from " in text for text in texts), texts
    path = project.folder / "train.py"
    path.write_text(star + head(loader))
    assert migrate(path, "--json").status == 0


@pytest.mark.parametrize("star", ["from torch.nn import *\n", "from math import *\n"])
def test_a_star_import_of_torchs_own_replaces_nothing(project, star):
    if "math" in star and sys.version_info < (3, 10):
        pytest.skip("Python 3.9 does not tell its modules")
    assert not translated(project, star + over("transforms.ToTensor()"))["notes"]["untranslated"]
