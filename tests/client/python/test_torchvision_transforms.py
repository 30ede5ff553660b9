"""`from_torchvision`: what each transform becomes, and what is refused.

The transforms are classes with the names, modules and attributes of torchvision's, so that these
tests run where it is not installed; where it is, its own are put beside them. That the pixels are
the same is tested in tests/integration/test_python_pipeline.py.
"""

from __future__ import annotations

import enum
from typing import Any

import pytest

import feedwater
from feedwater import from_torchvision, ops

FOLDER = {"format": "image_folder", "root": "photos"}
MNIST = {"format": "mnist", "root": "data"}
V1, V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2._geometry"


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class DType:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


FLOAT, UINT8, HALF, DOUBLE = map(DType, ("float32", "uint8", "float16", "float64"))


def fake(name: str, module: str = V1, **attributes: Any) -> Any:
    """An object of a class with this name and module."""
    return type(name, (), {"__module__": module, **attributes})()


def compose(*transforms: Any, module: str = V1) -> Any:
    return fake("Compose", module, transforms=list(transforms))


def graph(*transforms: Any, dataset: Any = FOLDER, **options: Any) -> list[Any]:
    """The graph that a Compose becomes, without the decoding before it."""
    made = from_torchvision(compose(*transforms), dataset=dataset, **options).to_dict()["graph"]
    return made[1:] if made[0] == "decode" else made


def refusal(*transforms: Any, dataset: Any = FOLDER) -> str:
    with pytest.raises(feedwater.InvalidArgument) as found:
        from_torchvision(compose(*transforms), dataset=dataset)
    return str(found.value)


def resize(size: Any, interpolation: Any = InterpolationMode.BILINEAR, **more: Any) -> Any:
    values = {"size": size, "interpolation": interpolation, "max_size": None, "antialias": True}
    return fake("Resize", **{**values, **more})


def random_crop(size: Any = (32, 32), module: str = V1, **more: Any) -> Any:
    values = {"padding": None, "pad_if_needed": False, "fill": 0, "padding_mode": "constant"}
    return fake("RandomCrop", module, size=size, **{**values, **more})


TO_TENSOR, TO_IMAGE = fake("ToTensor"), fake("ToImage", V2)
FLIP = fake("RandomHorizontalFlip", p=0.5)
CENTER = fake("CenterCrop", size=(224, 224))
NORMALIZE = fake("Normalize", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
IMAGENET = {"normalize": {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}}
AS_FLOATS = {"normalize": {"mean": [0.0], "std": [255.0]}}


def to_dtype(dtype: Any, scale: bool = False) -> Any:
    return fake("ToDtype", V2, dtype=dtype, scale=scale)


TRANSLATED = {
    "the shorter side": ([resize(256)], [{"resize": {"size": 256}}]),
    "the shorter side, as v2 keeps it": ([resize([256])], [{"resize": {"size": 256}}]),
    "both sides": ([resize((3, 4))], [{"resize": {"size": [3, 4]}}]),
    "both sides alike": ([resize((4, 4))], [{"resize": {"size": [4, 4]}}]),
    "a longest side": ([resize(8, max_size=9)], [{"resize": {"size": 8, "max_size": 9}}]),
    "bicubic": (
        [resize(8, InterpolationMode.BICUBIC)],
        [{"resize": {"size": 8, "interpolation": "bicubic"}}],
    ),
    "a number of Pillow's": ([resize(8, 3)], [{"resize": {"size": 8, "interpolation": "bicubic"}}]),
    "nearest of Pillow": (
        [resize(8, InterpolationMode.NEAREST)],
        [{"resize": {"size": 8, "interpolation": "nearest"}}],
    ),
    "the middle": ([CENTER], [{"center_crop": {"size": 224}}]),
    "an oblong middle": ([fake("CenterCrop", size=(2, 3))], [{"center_crop": {"size": [2, 3]}}]),
    "a random part": (
        [
            fake(
                "RandomResizedCrop",
                size=(8, 8),
                scale=(0.2, 1.0),
                ratio=(0.5, 2.0),
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            )
        ],
        [{"random_resized_crop": {"size": 8, "scale": [0.2, 1.0], "ratio": [0.5, 2.0]}}],
    ),
    "flips": (
        [FLIP, fake("RandomVerticalFlip", p=0.1)],
        ["random_horizontal_flip", {"random_vertical_flip": {"p": 0.1}}],
    ),
    "padding": ([random_crop(padding=4)], [{"random_crop": {"size": 32, "padding": 4}}]),
    "padding of four sides": (
        [random_crop(padding=(1, 2, 3, 4), fill=(1, 2, 3), pad_if_needed=True)],
        [
            {
                "random_crop": {
                    "size": 32,
                    "padding": [1, 2, 3, 4],
                    "pad_if_needed": True,
                    "fill": [1.0, 2.0, 3.0],
                }
            }
        ],
    ),
    # Of v2 the attribute is left, right, top, bottom.
    "padding of four sides in v2": (
        [random_crop(module=V2, padding=[1, 3, 2, 4])],
        [{"random_crop": {"size": 32, "padding": [1, 2, 3, 4]}}],
    ),
    "a fill of floats": (
        [TO_TENSOR, random_crop(padding=4, fill=0.2)],
        [{"random_crop": {"size": 32, "padding": 4, "fill": [51.0]}}, AS_FLOATS],
    ),
    "a fill of normalized floats": (
        [TO_TENSOR, NORMALIZE, random_crop(padding=4, fill=0.25)],
        [IMAGENET, {"random_crop": {"size": 32, "padding": 4, "fill": [0.25]}}],
    ),
    "colours": (
        [
            fake(
                "ColorJitter",
                brightness=(0.6, 1.4),
                contrast=None,
                saturation=None,
                hue=(-0.1, 0.1),
            )
        ],
        [{"color_jitter": {"brightness": [0.6, 1.4], "hue": [-0.1, 0.1]}}],
    ),
    "no colours": (
        [fake("ColorJitter", brightness=None, contrast=None, saturation=None, hue=None)],
        [],
    ),
    "grey of three channels": (
        [fake("Grayscale", num_output_channels=3)],
        [{"color_jitter": {"saturation": [0.0, 0.0]}}],
    ),
    "ImageNet's": (
        [resize(256), CENTER, TO_TENSOR, NORMALIZE],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "ImageNet's in v2": (
        [TO_IMAGE, resize([256]), CENTER, to_dtype(FLOAT, True), NORMALIZE],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "a model's own": (
        [
            fake(
                "ImageClassification",
                "torchvision.transforms._presets",
                crop_size=[224],
                resize_size=[256],
                mean=NORMALIZE.mean,
                std=NORMALIZE.std,
                antialias=True,
                interpolation=InterpolationMode.BILINEAR,
            )
        ],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "floats without Normalize": ([TO_TENSOR], [AS_FLOATS]),
    "bytes of a tensor": ([fake("PILToTensor")], ["layout"]),
    "floats of 0..255": (
        [TO_IMAGE, to_dtype(FLOAT)],
        [{"normalize": {"mean": [0.0], "std": [1.0]}}],
    ),
    "Normalize of 0..255": (
        [TO_IMAGE, to_dtype(FLOAT), fake("Normalize", mean=[120.0], std=[60.0])],
        [{"normalize": {"mean": [120.0], "std": [60.0]}}],
    ),
    "the name of a type by v1": (
        [fake("PILToTensor"), fake("ConvertImageDtype", dtype=FLOAT)],
        [AS_FLOATS],
    ),
    "bytes again": ([TO_IMAGE, to_dtype(UINT8, True)], ["layout"]),
    "halves": (
        [TO_TENSOR, NORMALIZE, FLIP, to_dtype(HALF)],
        [{"normalize": {**IMAGENET["normalize"], "dtype": "float16"}}, "random_horizontal_flip"],
    ),
    "flips behind Normalize": (
        [TO_TENSOR, NORMALIZE, FLIP],
        [IMAGENET, "random_horizontal_flip"],
    ),
    "what changes nothing": (
        [
            fake("Identity", "torch.nn.modules.linear"),
            fake("RGB", V2),
            TO_IMAGE,
            fake("ToPILImage"),
            fake("ToPureTensor", V2),
            FLIP,
        ],
        ["random_horizontal_flip"],
    ),
    "a Compose in a Compose": (
        [compose(FLIP, compose(CENTER)), TO_TENSOR],
        ["random_horizontal_flip", {"center_crop": {"size": 224}}, AS_FLOATS],
    ),
}


@pytest.mark.parametrize(("transforms", "expected"), TRANSLATED.values(), ids=TRANSLATED)
def test_a_transform_becomes_its_op(transforms, expected):
    assert graph(*transforms) == expected


OTHER = fake("Rotate", "my_project.transforms")
LAMBDA = fake("Lambda", lambd=lambda image: image)
REFUSED = {
    "a rotation": ([FLIP, fake("RandomRotation", degrees=(-9, 9))],
                   "transform 2, RandomRotation: no op does exactly the same (nearest op: "),
    "one in a Compose": ([FLIP, compose(FLIP, fake("Pad", padding=3))],
                         "transform 2.2, Pad: no op does exactly the same (nearest op: ran"),
    "batches' own": ([fake("CutMix", V2, alpha=1.0)], "no op does exactly the same (nearest "
                     "op: cutmix)"),
    "a lambda": ([LAMBDA], "transform 1, Lambda: a function of the program's own; no op"),
    "a function": ([abs], "transform 1, abs: a class or function of the program's own"),
    "an own class": ([OTHER], "transform 1, Rotate: a class or function of the program's own"),
    "a choice": ([fake("RandomApply", transforms=[FLIP], p=0.3)], "no op chooses among ops"),
    "Lanczos": ([resize(8, InterpolationMode.LANCZOS)], "no interpolation LANCZOS; bicubic is"),
    "box": ([resize(8, 4)], "no interpolation BOX"),
    "nearest of tensors": ([TO_IMAGE, resize(8, InterpolationMode.NEAREST)], "before ToImage"),
    "exact nearest of tensors": (
        [TO_IMAGE, resize(8, InterpolationMode.NEAREST_EXACT)], "NEAREST-EXACT picks other pixels"
    ),
    "no antialias": ([TO_IMAGE, resize(8, antialias=None)], "say antialias=True"),
    "a resize of floats": ([TO_TENSOR, resize(8)], "put it before ToTensor (ToDtype) (nearest op: "
                           "resize)"),
    "a jitter of floats": ([TO_TENSOR, fake("ColorJitter", brightness=(0, 1), contrast=None,
                                            saturation=None, hue=None)], "computes in floats"),
    "a longest side alone": ([resize(None, max_size=8)], "needs 'size' beside 'max_size'"),
    "too small": ([resize(0)], "feedwater.ops.resize: size is 0: it is an integer from 1"),
    "reflected padding": ([random_crop(padding=4, padding_mode="reflect")], "mode 'reflect'"),
    "a fill between bytes": ([TO_TENSOR, random_crop(fill=0.5)], "images are bytes before"),
    "fills by type": ([random_crop(fill={int: 3})], "'fill' is a map"),
    "one grey channel": ([fake("Grayscale", num_output_channels=1)], "makes 1 of 3 channels"),
    "Normalize of bytes": ([NORMALIZE], "transform 1, Normalize: it needs floats: ToTensor"),
    "two tensors": ([TO_TENSOR, TO_TENSOR], "transform 2, ToTensor: it stands behind"),
    "a type of a picture": ([to_dtype(FLOAT)], "it needs a tensor: ToImage stands before it"),
    "doubles": ([TO_IMAGE, to_dtype(DOUBLE, True)], "to float64: normalize makes float32"),
    "bytes of floats": ([TO_TENSOR, to_dtype(UINT8, True)], "to uint8"),
    "a picture of floats": ([TO_TENSOR, fake("ToPILImage")], "it makes bytes of floats"),
    "many channels": ([TO_TENSOR, fake("Normalize", mean=[0.5] * 4, std=[1])], "normalize: mean"),
    "a stranger of that name": ([fake("CenterCrop")], "it has no attribute 'size'"),
}  # fmt: skip


@pytest.mark.parametrize(("transforms", "message"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_exact_counterpart_is_named_with_its_place(transforms, message):
    text = refusal(*transforms)
    assert message in text
    assert text.startswith("1 of ") and "feedwater.Pipeline(graph=[...])" in text


def test_all_that_has_no_counterpart_is_named_at_once():
    text = refusal(OTHER, FLIP, LAMBDA)
    assert text.startswith("2 of 3 transforms have no exact counterpart:")
    assert "transform 1, Rotate" in text and "transform 3, Lambda" in text


def test_every_nearest_op_exists():
    from feedwater.torchvision_transforms import _NEAREST

    assert set(_NEAREST.values()) <= set(ops.__all__)


def test_an_op_of_the_same_name_is_the_nearest():
    from feedwater.torchvision_transforms import without_counterpart

    assert without_counterpart("OneHot").nearest == "one_hot"
    assert without_counterpart("Unheard").nearest is None


def test_grey_images_stay_grey():
    grey = fake("Grayscale", num_output_channels=1)
    normalize = fake("Normalize", mean=(0.1307,), std=(0.3081,))
    assert graph(grey, TO_TENSOR, normalize, dataset=MNIST) == [
        {"normalize": {"mean": [33.3285], "std": [78.5655]}}
    ]
    assert "makes 3 of 1 channels" in refusal(
        fake("Grayscale", num_output_channels=3), dataset=MNIST
    )
    assert "makes RGB of a grey image" in refusal(fake("RGB", V2), dataset=MNIST)


@pytest.mark.parametrize("step", [fake("Grayscale", num_output_channels=3), fake("RGB", V2)])
def test_pixels_of_unknown_channels_are_not_taken_as_rgb(step):
    npy = {"format": "npy", "root": "data"}
    with pytest.raises(feedwater.InvalidArgument, match=r"unknown|not known"):
        from_torchvision(step, dataset=npy, image="x", decode=False)
    for known in ({"dataset": {"format": "cifar10", "root": "data"}},
                  {"dataset": npy, "image": "x", "decode": True}):  # fmt: skip
        assert from_torchvision(step, **known)


def test_classes_of_versions_without_antialias_do_not_antialias_tensors():
    values = {"interpolation": InterpolationMode.BILINEAR}
    crop = fake("RandomResizedCrop", size=(8, 8), scale=(0.2, 1.0), ratio=(0.5, 2.0), **values)
    old = fake("Resize", size=8, max_size=None, **values)
    for step in (crop, old):
        assert "not antialiased" in refusal(fake("PILToTensor"), step)
        assert graph(step)  # on Pillow's images it is


def test_the_other_sections_are_those_of_pipeline():
    made = from_torchvision(
        FLIP, dataset=FOLDER, batch_size=8, sampler={"shuffle": "full"}, on_bad_sample="substitute",
        cache={"kind": "none"}, name="mine",
    )  # fmt: skip
    assert made.name == "mine" and made == feedwater.Pipeline(
        dataset=FOLDER, sampler={"shuffle": "full"}, cache={"kind": "none"}, batch=8,
        graph=[ops.decode(), ops.random_horizontal_flip()], outputs=["image", "label"],
        on_bad_sample="substitute",
    )  # fmt: skip


def test_the_field_of_the_image_is_known_or_asked_for():
    parquet = {"format": "parquet", "root": "data"}
    with pytest.raises(feedwater.InvalidArgument, match=r"format 'parquet'.*image='FIELD', and"):
        from_torchvision(FLIP, dataset=parquet)
    encoded = from_torchvision(FLIP, dataset=parquet, image="jpeg", decode=True).to_dict()
    assert encoded["graph"] == [{"decode": {"in": "jpeg"}}, "random_horizontal_flip"]
    assert encoded["outputs"] == ["image", "label"]
    pixels = from_torchvision(FLIP, dataset=parquet, image="x", decode=False).to_dict()
    assert pixels["graph"] == [{"random_horizontal_flip": {"in": "x"}}]
    assert pixels["outputs"] == ["x", "label"]
    unlabelled = from_torchvision(FLIP, dataset={"format": "images", "root": "r"}).to_dict()
    assert unlabelled["outputs"] == ["image"]
    mix = {"mix": [{**FOLDER, "weight": 1}, {**FOLDER, "path": "b", "weight": 2}]}
    assert from_torchvision(FLIP, dataset=mix).to_dict()["graph"][0] == "decode"
    with pytest.raises(feedwater.InvalidArgument, match="dataset is 'photos'"):
        from_torchvision(FLIP, dataset="photos")


def test_torchvisions_own_classes_are_translated_as_these_fakes():
    """Also where an attribute's form differs from the argument's."""
    torch = pytest.importorskip("torch")
    t = pytest.importorskip("torchvision.transforms")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    whole = [
        {"random_crop": {"size": 32, "padding": [1, 2, 3, 4], "fill": [7.0]}},
        {"resize": {"size": 40, "interpolation": "bicubic", "max_size": 60}},
        {"random_resized_crop": {"size": [24, 28], "scale": [0.5, 1.0]}},
        {"color_jitter": {"brightness": [0.6, 1.4], "hue": [-0.1, 0.1]}},
        {"center_crop": {"size": 16}},
        {"random_horizontal_flip": {"p": 0.25}},
        "random_vertical_flip",
        IMAGENET,
    ]
    for module in (t, v2):
        tail = [t.ToTensor()] if module is t else [v2.ToImage(), v2.ToDtype(torch.float32, True)]
        made = module.Compose(
            [
                module.RandomCrop(32, padding=[1, 2, 3, 4], fill=7),
                module.Resize(40, module.InterpolationMode.BICUBIC, max_size=60),
                module.Compose([module.RandomResizedCrop((24, 28), scale=(0.5, 1.0))]),
                module.ColorJitter(0.4, hue=0.1),
                torch.nn.Sequential(module.CenterCrop(16), module.RandomHorizontalFlip(0.25)),
                module.RandomVerticalFlip(),
                *tail,
                module.Normalize(mean, std),
            ]
        )
        assert from_torchvision(made, dataset=FOLDER).to_dict()["graph"] == ["decode", *whole]
    weights = pytest.importorskip("torchvision.models").ResNet18_Weights.DEFAULT
    assert from_torchvision(weights.transforms(), dataset=FOLDER).to_dict()["graph"] == [
        "decode", {"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET,
    ]  # fmt: skip


def test_every_parameter_of_the_table_is_one_of_torchvisions():
    """Names and order of the constructors, which `feedwater migrate` counts on."""
    import inspect

    v1 = pytest.importorskip("torchvision.transforms")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    from feedwater.torchvision_transforms import TRANSFORMS

    seen = 0
    for name, entry in TRANSFORMS.items():
        for module in (v1, v2):
            cls = getattr(module, name, None)
            if cls is None:
                continue
            own = [p for p in inspect.signature(cls).parameters if p not in ("args", "kwargs")]
            ours = [p for p in entry.parameters if p in own]
            assert ours == own[: len(ours)], (name, module)
            seen += 1
    assert seen > 20
