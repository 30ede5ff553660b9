"""What is done by chance, in a random order, or one of several."""

from __future__ import annotations

from torchvision_fakes import (
    BLUR,
    CENTER,
    FLIP,
    HALF,
    JITTER,
    NORMALIZE,
    OTHER,
    TO_TENSOR,
    V2,
    Table,
    by_chance,
    choice,
    compose,
    fake,
    to_dtype,
)

TRANSLATED: Table = {
    "grey by chance": (
        [by_chance(fake("Grayscale", num_output_channels=3))],
        [{"apply": {"ops": [{"grayscale": {"num_output_channels": 3}}], "p": 0.3}}],
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
}

REFUSED: Table = {
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
    "one channel by chance": ([by_chance(fake("Grayscale", num_output_channels=1))],
                              "transform 1, RandomApply: it changes the number of channels by "
                              "chance"),
}  # fmt: skip
