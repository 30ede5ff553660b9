"""feedwater migrate: scripts that change torch's and torchvision's own classes and modules."""

from __future__ import annotations

import pytest
from migration import DATA, head, migrate, write

LOAD = f"{DATA}\nloader = DataLoader(data)\n"
BODY = "lambda s, i: (0, 0)"
PATCHES = {
    "setattr": f"setattr(datasets.ImageFolder, '__getitem__', {BODY})",
    "setattr of a module": "setattr(datasets.folder, 'default_loader', read)",
    "__setattr__": f"type.__setattr__(datasets.ImageFolder, '__getitem__', {BODY})",
    "delattr": "delattr(datasets.ImageFolder, '__len__')",
    "mock": (
        "from unittest import mock\n"
        f"mock.patch.object(datasets.ImageFolder, '__getitem__', {BODY}).start()"
    ),
    "mock by a text": (
        "from unittest import mock\n"
        f"mock.patch('torchvision.datasets.ImageFolder.__getitem__', {BODY}).start()"
    ),
    "an alias of a class": f"C = datasets.ImageFolder\nC.__getitem__ = {BODY}",
    "an alias of a module": f"m = datasets\nm.ImageFolder.__getitem__ = {BODY}",
    "an alias of a transform": "C = transforms.ToTensor\nC.__call__ = read",
    "one of several": (
        f"for C in (datasets.ImageFolder, datasets.MNIST):\n    C.__getitem__ = {BODY}"
    ),
    "one of a dict": (f"known = {{'a': datasets.ImageFolder}}\nknown['a'].__getitem__ = {BODY}"),
    "sys.modules": (
        f"import sys\nsys.modules['torchvision.datasets'].ImageFolder.__getitem__ = {BODY}"
    ),
    "importlib": (
        "import importlib\nm = importlib.import_module('torchvision.datasets')\n"
        f"m.ImageFolder.__getitem__ = {BODY}"
    ),
    "the dict of a module": "datasets.__dict__['ImageFolder'] = Mine",
    "vars() of a module": "vars(datasets).update(ImageFolder=Mine)",
    "a function of the script": (
        f"def change(c):\n    c.__getitem__ = {BODY}\nchange(datasets.ImageFolder)"
    ),
    "a function with a default": (
        f"def change(c=datasets.ImageFolder):\n    c.__getitem__ = {BODY}\nchange()"
    ),
    "a lambda": (
        f"change = lambda c: setattr(c, '__getitem__', {BODY})\nchange(datasets.ImageFolder)"
    ),
    "what a function returns": (
        f"def get():\n    return datasets.ImageFolder\nget().__getitem__ = {BODY}"
    ),
    "an attribute": (
        "class Box:\n    def __init__(self):\n        self.kind = datasets.ImageFolder\n"
        f"Box().kind.__getitem__ = {BODY}"
    ),
    "getattr": f"getattr(datasets, 'ImageFolder').__getitem__ = {BODY}",
    "the module of a class": (
        "import sys\nsys.modules[datasets.ImageFolder.__module__].ImageFolder.__getitem__ = read"
    ),
    "the base of a class": (
        "class Mine(datasets.ImageFolder):\n    pass\nMine.__bases__[0].__getitem__ = read"
    ),
    "every transform": "torch.nn.Module.__call__ = read",
    "every tensor": "setattr(torch.Tensor, '__getitem__', read)",
    "every picture": "from PIL import Image\nImage.Image.convert = read",
    "the class of a dataset": f"type(other).__getitem__ = {BODY}",
    "the class of a dataset by its attribute": f"other.__class__.__getitem__ = {BODY}",
}


@pytest.mark.parametrize("lines", PATCHES.values(), ids=PATCHES)
def test_a_class_of_torchs_that_is_changed_leaves_the_loaders(project, lines):
    done = migrate(write(project.folder, head(f"{lines}\n{LOAD}")), "--json").document
    assert done["files"] == {} and done["diff"] == ""
    (told,) = done["untranslated"]
    assert "a class may be changed here" in told["text"], told


KEPT = {
    "where it is loaded from": "setattr(datasets.MNIST, 'mirrors', [])",
    "an alias that is called": "C = datasets.CIFAR10\nother = C('/d/y')\nother.classes = []",
    "a dict of classes": "known = {'a': datasets.ImageFolder}\nprint(known['a'].__name__)",
    "a class of its own": (
        "class Mine(datasets.ImageFolder):\n    pass\nMine.__len__ = lambda self: 3"
    ),
    "limits of PIL's": (
        "from PIL import Image, ImageFile\nImage.MAX_IMAGE_PIXELS = None\n"
        "ImageFile.LOAD_TRUNCATED_IMAGES = True"
    ),
    "settings of torch's": "torch.backends.cudnn.benchmark = True",
    "a model": "import torchvision\nm = torchvision.models.resnet18()\nm.fc = torch.nn.Identity()",
    "a model by its name": (
        "import torchvision\nm = torchvision.models.__dict__[name]()\nm.fc = torch.nn.Identity()\n"
        "n = getattr(torchvision.models, name)()\nn.fc = torch.nn.Identity()"
    ),
    "an argument": "build(kind=datasets.MNIST)\nhasattr(transforms, 'v2')",
    "a class of self": (
        "class Net:\n    count = 0\n    def __init__(self):\n        type(self).count += 1\n"
        "        self.__class__.count += 1\n        self.kind = datasets.MNIST"
    ),
}


@pytest.mark.parametrize("lines", KEPT.values(), ids=KEPT)
def test_what_changes_no_class_of_torchs_leaves_nothing(project, lines):
    done = migrate(write(project.folder, head(f"{lines}\n{LOAD}")), "--json").document
    assert len(done["files"]) == 1 and not done["untranslated"], done["untranslated"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch.set_default_dtype(torch.float64)", "a pipeline float32"),
        ("import torchvision\ntorchvision.set_image_backend('accimage')", "a library of its own"),
        ("torch.set_default_dtype(torch.float32)", ""),
    ],
)
def test_what_is_set_for_the_whole_program_is_noted(project, line, message):
    done = migrate(write(project.folder, head(f"{line}\n{LOAD}")), "--json").document
    assert done["diff"] and [message in note["text"] for note in done["notes"]] == [True] * bool(
        message
    )
