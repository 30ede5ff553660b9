"""`from_torchvision`: what each transform becomes, and what is refused.

The transforms are classes with the names, modules and attributes of torchvision's, so that these
tests run where it is not installed; where it is, its own are put beside them. That the pixels are
the same is tested in tests/integration/test_python_pipeline.py.
"""

from __future__ import annotations

import pytest
from torchvision_fakes import (
    AS_FLOATS,
    BLUR,
    CENTER,
    DOUBLE,
    FLIP,
    FLOAT,
    FOLDER,
    HALF,
    IMAGENET,
    JITTER,
    MNIST,
    NORMALIZE,
    TO_IMAGE,
    TO_TENSOR,
    UINT8,
    V2,
    InterpolationMode,
    Policy,
    by_chance,
    choice,
    compose,
    erasing,
    fake,
    graph,
    normalized,
    random_crop,
    refusal,
    resize,
    rotation,
    to_dtype,
)

import feedwater
from feedwater import from_torchvision, ops

PICKED = {"interpolation": InterpolationMode.NEAREST, "fill": None}
TRANSLATED = {
    "a rotation": (
        [rotation(center=(3, 4), expand=True)],
        [
            {
                "random_rotation": {
                    "degrees": [-9.0, 9.0],
                    "interpolation": "bilinear",
                    "expand": True,
                    "center": [3, 4],
                }
            }
        ],
    ),
    "an affine map": (
        [
            fake(
                "RandomAffine",
                degrees=[-9.0, 9.0],
                translate=(0.1, 0.2),
                scale=None,
                shear=[-5.0, 5.0],
                interpolation=InterpolationMode.NEAREST,
                fill=7,
                center=None,
            )
        ],
        [
            {
                "random_affine": {
                    "degrees": [-9.0, 9.0],
                    "fill": [7.0],
                    "translate": [0.1, 0.2],
                    "shear": [-5.0, 5.0],
                }
            }
        ],
    ),
    "a perspective": (
        [
            fake(
                "RandomPerspective",
                distortion_scale=0.3,
                p=0.5,
                interpolation=InterpolationMode.BILINEAR,
                fill=0,
            )
        ],
        [{"random_perspective": {"distortion_scale": 0.3}}],
    ),
    "an elastic one": (
        [
            fake(
                "ElasticTransform",
                alpha=[40.0, 40.0],
                sigma=[5.0, 5.0],
                interpolation=InterpolationMode.BILINEAR,
                fill=0,
            )
        ],
        [{"elastic_transform": {"alpha": [40.0, 40.0]}}],
    ),
    "a blur": (
        [TO_IMAGE, fake("GaussianBlur", kernel_size=(5, 9), sigma=(0.1, 5.0))],
        [{"gaussian_blur": {"kernel_size": [5, 9], "sigma": [0.1, 5.0]}}, "layout"],
    ),
    "noise": (
        [TO_IMAGE, fake("GaussianNoise", V2, mean=0.0, sigma=0.2, clip=True)],
        [{"gaussian_noise": {"sigma": 0.2}}, "layout"],
    ),
    "artefacts of a JPEG": (
        [fake("JPEG", V2, quality=(50, 90))],
        [{"jpeg": {"quality": [50, 90]}}],
    ),
    "whitened colours": (
        [
            TO_TENSOR,
            NORMALIZE,
            fake("LinearTransformation", transformation_matrix=[[2.0]], mean_vector=[0.5]),
        ],
        [
            IMAGENET,
            {"linear_transformation": {"transformation_matrix": [[2.0]], "mean_vector": [0.5]}},
        ],
    ),
    "points": (
        [
            fake("RandomInvert", p=0.5),
            fake("RandomPosterize", bits=3, p=0.2),
            fake("RandomSolarize", threshold=128, p=0.5),
            fake("RandomEqualize", p=1),
            fake("RandomAutocontrast", p=0.5),
            fake("RandomGrayscale", p=0.1),
            fake("RandomChannelPermutation", V2),
        ],
        [
            "random_invert",
            {"random_posterize": {"bits": 3, "p": 0.2}},
            {"random_solarize": {"threshold": 128}},
            {"random_equalize": {"p": 1}},
            "random_autocontrast",
            "random_grayscale",
            "random_channel_permutation",
        ],
    ),
    "photometric distortion": (
        [
            fake(
                "RandomPhotometricDistort",
                V2,
                brightness=(0.875, 1.125),
                contrast=(0.5, 1.5),
                saturation=(0.5, 1.5),
                hue=(-0.1, 0.1),
                p=0.5,
            )
        ],
        [{"random_photometric_distort": {"hue": [-0.1, 0.1]}}],
    ),
    "policies": (
        [
            fake("RandAugment", num_ops=3, magnitude=7, num_magnitude_bins=31, **PICKED),
            fake("TrivialAugmentWide", num_magnitude_bins=31, **PICKED),
            fake("AutoAugment", policy=Policy.CIFAR10, **PICKED),
            fake(
                "AugMix",
                severity=4,
                mixture_width=3,
                chain_depth=-1,
                alpha=1.0,
                all_ops=True,
                interpolation=InterpolationMode.BILINEAR,
                fill=None,
            ),
        ],
        [
            {"rand_augment": {"num_ops": 3, "magnitude": 7}},
            "trivial_augment_wide",
            {"auto_augment": {"policy": "cifar10"}},
            {"aug_mix": {"severity": 4}},
        ],
    ),
    "sizes for detection": (
        [
            fake("RandomZoomOut", V2, fill=0, side_range=(1.0, 3.0), p=0.5),
            fake(
                "ScaleJitter",
                V2,
                target_size=(64, 64),
                scale_range=(0.5, 2.0),
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
            fake(
                "RandomResize",
                V2,
                min_size=32,
                max_size=41,
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
            fake(
                "RandomShortestSize",
                V2,
                min_size=[32, 40],
                max_size=90,
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
        ],
        [
            {"random_zoom_out": {"side_range": [1.0, 3.0]}},
            {"scale_jitter": {"target_size": [64, 64], "scale_range": [0.5, 2.0]}},
            {"random_resize": {"min_size": 32, "max_size": 41}},
            {"random_short_side": {"min_size": [32, 40], "max_size": 90}},
        ],
    ),
    "a border": (
        [fake("Pad", padding=[1, 2], fill=7, padding_mode="constant")],
        [{"pad": {"padding": [1, 2], "fill": [7.0]}}],
    ),
    "borders of version 2, which keeps them as they were given": (
        [
            fake("Pad", V2, padding=padding, fill=0, padding_mode="constant")
            for padding in (4, [1, 2], [1, 2, 3, 4])
        ],
        [{"pad": {"padding": padding}} for padding in (4, [1, 2], [1, 2, 3, 4])],
    ),
    "sharpness": (
        [fake("RandomAdjustSharpness", sharpness_factor=2, p=0.5)],
        [{"random_adjust_sharpness": {"sharpness_factor": 2}}],
    ),
    "erasing behind Normalize": (
        [TO_TENSOR, NORMALIZE, erasing(value=(1.5, 0, -1))],
        [IMAGENET, {"random_erasing": {"p": 0.25, "value": [1.5, 0.0, -1.0]}}],
    ),
    "erasing with noise": (
        [TO_TENSOR, NORMALIZE, erasing(value="random")],
        [IMAGENET, {"random_erasing": {"p": 0.25, "noise": True}}],
    ),
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
        [{"grayscale": {"num_output_channels": 3}}],
    ),
    "one grey channel": (
        [fake("Grayscale", num_output_channels=1), TO_TENSOR, normalized((0.5,), (0.25,))],
        ["grayscale", {"normalize": {"mean": [127.5], "std": [63.75]}}],
    ),
    "grey of tensors": (
        [TO_IMAGE, fake("Grayscale", V2, num_output_channels=1), to_dtype(FLOAT, True)],
        ["grayscale", AS_FLOATS],
    ),
    "grey and back": (
        [fake("Grayscale", V2, num_output_channels=1), fake("RGB", V2), TO_TENSOR, NORMALIZE],
        ["grayscale", {"grayscale": {"num_output_channels": 3}}, IMAGENET],
    ),
    "grey by chance": (
        [by_chance(fake("Grayscale", num_output_channels=3))],
        [{"apply": {"ops": [{"grayscale": {"num_output_channels": 3}}], "p": 0.3}}],
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
    "one op by chance": (
        [by_chance(JITTER, p=0.8), by_chance(BLUR), by_chance(JITTER, p=1)],
        [
            {"color_jitter": {"brightness": [0.6, 1.4], "p": 0.8}},
            {"gaussian_blur": {"kernel_size": [3, 3], "p": 0.3}},
            {"color_jitter": {"brightness": [0.6, 1.4]}},
        ],
    ),
    "ops by chance": (
        [by_chance(FLIP), by_chance(JITTER, CENTER)],
        [
            {"apply": {"p": 0.3, "ops": ["random_horizontal_flip"]}},
            {
                "apply": {
                    "p": 0.3,
                    "ops": [
                        {"color_jitter": {"brightness": [0.6, 1.4]}},
                        {"center_crop": {"size": 224}},
                    ],
                }
            },
        ],
    ),
    "nothing by chance": (
        [by_chance(fake("Identity", "torch.nn.modules.linear")), FLIP],
        ["random_horizontal_flip"],
    ),
    "choices": (
        [
            choice([FLIP, CENTER], p=None),
            choice([FLIP, CENTER], p=[1, 3]),
            choice([FLIP, CENTER], V2, probabilities=[0.5, 0.5]),
            choice([FLIP, CENTER], V2, probabilities=[0.25, 0.75]),
        ],
        [
            {
                "one_of": {
                    **weights,
                    "ops": ["random_horizontal_flip", {"center_crop": {"size": 224}}],
                }
            }
            for weights in ({}, {"weights": [1.0, 3.0]}, {}, {"weights": [0.25, 0.75]})
        ],
    ),
    "a random order": (
        [
            fake(
                "RandomOrder",
                transforms=[FLIP, fake("Identity", "torch.nn.modules.linear"), CENTER],
            )
        ],
        [
            {
                "some_of": {
                    "n": 2,
                    "order": "random",
                    "ops": ["random_horizontal_flip", {"center_crop": {"size": 224}}],
                }
            }
        ],
    ),
    "one by chance in another": (
        [choice([by_chance(BLUR), compose(FLIP, by_chance(FLIP, CENTER))], p=None)],
        [
            {
                "one_of": {
                    "ops": [
                        {"gaussian_blur": {"kernel_size": [3, 3], "p": 0.3}},
                        {
                            "apply": {
                                "p": 1.0,
                                "ops": [
                                    "random_horizontal_flip",
                                    {
                                        "apply": {
                                            "p": 0.3,
                                            "ops": [
                                                "random_horizontal_flip",
                                                {"center_crop": {"size": 224}},
                                            ],
                                        }
                                    },
                                ],
                            }
                        },
                    ]
                }
            }
        ],
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
    "crops of a tuple": ([fake("FiveCrop", size=(8, 8))], "put that behind normalize (nearest op: "
                         "five_crop)"),
    "boxes": ([fake("RandomIoUCrop", V2)], "it needs boxes"),
    "a rotation of tensors": ([TO_IMAGE, rotation()], "put it before ToImage"),
    "a bicubic rotation": ([rotation(interpolation=InterpolationMode.BICUBIC)], "random_rotation"),
    "autocontrast of tensors": ([TO_IMAGE, fake("RandomAutocontrast", p=0.5)], "before ToImage"),
    "solarize of floats": ([fake("RandomSolarize", threshold=0.5, p=0.5)], "from 0 to 255"),
    "noise that is not clipped": ([TO_IMAGE, fake("GaussianNoise", V2, mean=0, sigma=0.1,
                                                  clip=False)], "the op clips"),
    "whitening of bytes": ([fake("LinearTransformation", transformation_matrix=[[1]],
                                 mean_vector=[0])], "behind Normalize"),
    "one in a Compose": ([FLIP, compose(FLIP, fake("Posterize", V2))],
                         "transform 2.2, Posterize: no op does exactly the same"),
    "a reflected border": ([fake("Pad", padding=3, fill=0, padding_mode="reflect")],
                           "mode 'reflect'"),
    "sharpness of tensors": ([TO_IMAGE, fake("RandomAdjustSharpness", sharpness_factor=2, p=1)],
                             "put it before ToImage"),
    "noise of bytes": ([TO_TENSOR, erasing(value="random")], "does it behind Normalize"),
    "batches' own": ([fake("CutMix", V2, alpha=1.0)], "it is for batches: the op stands in "
                     "batch={'graph': [...]} (nearest op: cutmix)"),
    "a lambda": ([LAMBDA], "transform 1, Lambda: a function of the program's own. What"),
    "a function": ([abs], "transform 1, abs: a class or function of the program's own"),
    "an own class": ([OTHER], "transform 1, Rotate: a class or function of the program's own: "
                     "serve it with feedwater.serve_op(NAME, function), and put `python: {name: "),
    "a type by chance": ([by_chance(TO_TENSOR)], "transform 1, RandomApply: it changes the image's "
                         "type by chance"),
    "halves by chance": ([TO_TENSOR, NORMALIZE, by_chance(FLIP, FLIP, to_dtype(HALF))],
                         "its transform 3, ToDtype: it changes the image's type by chance"),
    "a stranger by chance": ([by_chance(FLIP, OTHER)], "transform 1, RandomApply: its transform 2, "
                             "Rotate: a class or function of the program's own"),
    "a stranger in a choice": ([choice([FLIP, compose(CENTER, abs)])], "transform 1, RandomChoice: "
                               "its transform 2.2, abs: a class or function"),
    "a choice of nothing": ([choice([FLIP, fake("Identity", "torch.nn.modules.linear")])],
                            "its transform 2 does nothing here"),
    "a chance over one": ([by_chance(FLIP, CENTER, p=1.5)], "feedwater.ops.apply: p is 1.5"),
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
    "two grey channels": ([fake("Grayscale", num_output_channels=2)], "num_output_channels"),
    "grey of floats": ([TO_TENSOR, fake("Grayscale", num_output_channels=1)],
                       "computes in floats here"),
    "one channel by chance": ([by_chance(fake("Grayscale", num_output_channels=1))],
                              "transform 1, RandomApply: it changes the number of channels by chanc"
                              "e"),
    "colours of a grey image": ([fake("Grayscale", num_output_channels=1), TO_TENSOR, NORMALIZE],
                                "transform 3, Normalize: mean has 3 values, and the image is grey: "
                                "it takes one (nearest op: normalize)"),
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


def test_a_refused_type_by_chance_leaves_the_type_to_those_behind_it():
    text = refusal(by_chance(TO_TENSOR), TO_TENSOR, NORMALIZE)
    assert text.startswith("1 of 3 transforms")


def test_all_that_has_no_counterpart_is_named_at_once():
    text = refusal(OTHER, FLIP, LAMBDA)
    assert text.startswith("2 of 3 transforms have no exact counterpart:")
    assert "transform 1, Rotate" in text and "transform 3, Lambda" in text


def test_every_op_that_a_library_knows_exists():
    from feedwater._pipeline_schema import KNOWN_AS

    assert {"torchvision", "Albumentations", "MindSpore", "DALI"} <= set(KNOWN_AS)
    for names in KNOWN_AS.values():
        assert set(names.values()) <= set(ops.__all__)


def test_every_translated_class_is_known_as_an_op_of_torchvisions():
    """What changes an image: types, containers and presets are several ops or none."""
    from feedwater._pipeline_schema import KNOWN_AS
    from feedwater.torchvision_transforms import TRANSFORMS

    types = {"Identity", "ImageClassification", "RGB", "ToPILImage", "ToPureTensor"}
    assert set(TRANSFORMS) - types <= set(KNOWN_AS["torchvision"])


def test_an_op_of_the_same_name_is_the_nearest():
    from feedwater.torchvision_transforms import without_counterpart

    assert without_counterpart("OneHot").nearest == "one_hot"
    assert without_counterpart("Unheard").nearest is None


# Classes of torchvision's that an op does and that are not translated; the text says why.
UNTRANSLATED = {"CutMix", "FiveCrop", "Lambda", "MixUp", "RandomIoUCrop", "TenCrop"}


def test_each_class_that_an_op_does_is_translated_or_refused_with_a_reason():
    from feedwater._pipeline_schema import BATCH_OPS, KNOWN_AS
    from feedwater.torchvision_chance import BY_CHANCE
    from feedwater.torchvision_transforms import TRANSFORMS, without_counterpart

    classes = {name for name in KNOWN_AS["torchvision"] if name[0].isupper()}
    assert classes - set(TRANSFORMS) - set(BY_CHANCE) == UNTRANSLATED
    for name in UNTRANSLATED:
        reason = without_counterpart(name)
        unsaid = ("this version does not translate it", "no op does exactly the same")
        assert str(reason) not in unsaid, name
        assert reason.nearest in (*ops.__all__, *BATCH_OPS) or name == "Lambda"


def test_grey_images_stay_grey():
    grey = fake("Grayscale", num_output_channels=1)
    assert graph(grey, TO_TENSOR, normalized((0.1307,), (0.3081,)), dataset=MNIST) == [
        {"normalize": {"mean": [33.3285], "std": [78.5655]}}
    ]
    for step in (fake("Grayscale", num_output_channels=3), fake("RGB", V2)):
        assert graph(step, dataset=MNIST) == [{"grayscale": {"num_output_channels": 3}}]


def test_pixels_of_unknown_channels_are_not_taken_as_rgb():
    npy = {"format": "npy", "root": "data"}
    step = fake("RGB", V2)
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
