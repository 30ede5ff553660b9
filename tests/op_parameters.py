"""What ops have to be given, for tests that make each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEEDED = {
    "bits": 4,
    "brightness_factor": 1.5,
    "contrast_factor": 1.5,
    "degrees": 10,
    "frames": 16000,
    "freq_mask_param": 8,
    "gamma": 2.0,
    "hue_factor": 0.1,
    "kernel_size": 3,
    "length": 8,
    "max_length": 16,
    "mean": [1.0],
    "mean_vector": [0.0, 0.0, 0.0],
    "min_size": [8],
    "n": 1,
    "n_freq_masks": 1,
    "n_time_masks": 1,
    "name": "mine",
    "new_freq": 8000,
    "ops": ["random_invert"],
    "orig_freq": 16000,
    "p": 0.5,
    "padding": 1,
    "quality": 50,
    "sample_rate": 16000,
    "samples": 2,
    "saturation_factor": 1.5,
    "sharpness_factor": 2.0,
    "size": 8,
    "space": "hsv",
    "std": [1.0],
    "target_size": 8,
    "threshold": 128,
    "time_mask_param": 8,
    "times": 2,
    "tokenizer": "words.json",
    "transformation_matrix": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}
OF_OP = {"random_resize": {"min_size": 8, "max_size": 9}}  # where a name means another thing
OF_TEXT = ("tokenize", "pack")  # which test_text.py tries
OF_OPEN_SIZE = (
    "random_resize",
    "random_short_side",
    "scale_jitter",
    "random_zoom_out",
    "random_iou_crop",
)
OF_AUDIO = (
    "amplitude_to_db",
    "crop_audio",
    "decode_audio",
    "frequency_masking",
    "mel_spectrogram",
    "mfcc",
    "random_crop_audio",
    "resample",
    "spec_augment",
    "time_masking",
    "to_mono",
)


def needed(op: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an op has to be given."""
    known = {**NEEDED, **OF_OP.get(op, {})}
    lacking = sorted(set(schema["required"]) - set(known))
    assert not lacking, f"NEEDED of tests/op_parameters.py has no value for {lacking} of {op}"
    return {key: known[key] for key in schema["required"]}
