"""`from_torchvision`: what each transform becomes, and what is refused.

The transforms are classes with the names, modules and attributes of torchvision's, so that these
tests run where it is not installed; where it is, its own are put beside them. That the pixels are
the same is tested in tests/integration/test_python_pipeline.py.
"""

from __future__ import annotations

import pytest
from torchvision_cases import REFUSED, TRANSLATED
from torchvision_fakes import (
    FLIP,
    FOLDER,
    IMAGENET,
    LAMBDA,
    MNIST,
    NORMALIZE,
    OTHER,
    TO_TENSOR,
    V2,
    InterpolationMode,
    by_chance,
    fake,
    graph,
    normalized,
    refusal,
)

import feedwater
from feedwater import from_torchvision, ops


@pytest.mark.parametrize(("transforms", "expected"), TRANSLATED.values(), ids=TRANSLATED)
def test_a_transform_becomes_its_op(transforms, expected):
    assert graph(*transforms) == expected


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
