"""Transforms of torchvision one by one: what a `Translator` makes of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .torchvision_steps import NoCounterpart, Steps, listed, window


class Translator(Steps):
    """Translates transforms one after the other into `ops`."""

    # --- sizes and places

    def resize(self, values: dict[str, Any]) -> None:
        """Resize."""
        self._refuse_floats("resize")
        size = values["size"]
        if size is None:
            raise NoCounterpart("the op needs 'size' beside 'max_size'")
        size = listed(size)
        self._emit(
            "resize",
            size=size[0] if len(size) == 1 else size,
            interpolation=self._interpolation(values),
            max_size=values["max_size"],
        )

    def center_crop(self, values: dict[str, Any]) -> None:
        """CenterCrop."""
        self._emit("center_crop", size=window(values["size"]))

    def random_crop(self, values: dict[str, Any]) -> None:
        """RandomCrop."""
        if values["padding_mode"] != "constant":
            raise NoCounterpart(
                f"padding_mode {values['padding_mode']!r}: the op pads with one value, `fill`"
            )
        padding = values["padding"]
        if isinstance(padding, Sequence) and len(padding) == 1:
            padding = padding[0]
        self._emit(
            "random_crop",
            size=window(values["size"]),
            padding=0 if padding is None else padding,
            pad_if_needed=values["pad_if_needed"],
            fill=self._fill(values["fill"]),
        )

    def pad(self, values: dict[str, Any]) -> None:
        """Pad."""
        if values["padding_mode"] != "constant":
            raise NoCounterpart(
                f"padding_mode {values['padding_mode']!r}: the op pads with one value, `fill`"
            )
        padding = listed(values["padding"])
        self._emit(
            "pad",
            padding=padding[0] if len(padding) == 1 else padding,
            fill=self._fill(values["fill"]),
        )

    def random_resized_crop(self, values: dict[str, Any]) -> None:
        """RandomResizedCrop."""
        self._refuse_floats("random_resized_crop")
        self._emit(
            "random_resized_crop",
            size=window(values["size"]),
            scale=listed(values["scale"]),
            ratio=listed(values["ratio"]),
            interpolation=self._interpolation(values),
        )

    def random_horizontal_flip(self, values: dict[str, Any]) -> None:
        """RandomHorizontalFlip."""
        self._emit("random_horizontal_flip", p=values["p"])

    def random_vertical_flip(self, values: dict[str, Any]) -> None:
        """RandomVerticalFlip."""
        self._emit("random_vertical_flip", p=values["p"])

    def random_erasing(self, values: dict[str, Any]) -> None:
        """RandomErasing: 'random' is normal noise, of normalized images alone."""
        given = {name: values[name] for name in ("p", "scale", "ratio")}
        given.update({name: listed(given[name]) for name in ("scale", "ratio")})
        if values["value"] == "random" or values["value"] is None:
            if self._normalized is None:
                raise NoCounterpart(
                    "value 'random': the op does it behind Normalize", "random_erasing"
                )
            self._emit("random_erasing", **given, noise=True)
        else:
            self._emit("random_erasing", **given, value=self._fill(values["value"]))

    # --- colours

    def random_adjust_sharpness(self, values: dict[str, Any]) -> None:
        """RandomAdjustSharpness: with Pillow's arithmetic."""
        self._refuse_floats("random_adjust_sharpness")
        if self._is_tensor:
            raise NoCounterpart(
                "on tensors it rounds otherwise than on Pillow's images, as the op does: put it "
                "before ToImage",
                "random_adjust_sharpness",
            )
        self._emit(
            "random_adjust_sharpness", sharpness_factor=values["sharpness_factor"], p=values["p"]
        )

    def color_jitter(self, values: dict[str, Any]) -> None:
        """ColorJitter. Attributes are ranges or None, arguments may be numbers."""
        self._refuse_floats("color_jitter")
        given: dict[str, Any] = {}
        for name in ("brightness", "contrast", "saturation", "hue"):
            value = values[name]
            if value is not None and value != 0:
                given[name] = list(value) if isinstance(value, Sequence) else value
        if given:
            self._emit("color_jitter", **given)

    def grayscale(self, values: dict[str, Any]) -> None:
        """Grayscale."""
        self._refuse_floats("grayscale")
        wanted = values["num_output_channels"]
        if wanted == 1 and self._channels == 1:
            return
        self._emit("grayscale", num_output_channels=wanted)
        self._channels = wanted

    def rgb(self, values: dict[str, Any]) -> None:
        """RGB: what decode gives, and CIFAR's images are; three equal channels of a grey one."""
        if not self._channels:
            raise NoCounterpart("how many channels the pixels have is not known: leave it out")
        if self._channels == 1:
            self.grayscale({"num_output_channels": 3})

    # --- warps, filters, noise

    def _of_pictures(self, name: str) -> None:
        """Refuse tensors, on which torchvision computes otherwise than on Pillow's images."""
        self._refuse_floats(name)
        if self._is_tensor:
            raise NoCounterpart(
                "on tensors it computes otherwise than on Pillow's images, as the op does: put it "
                "before ToImage",
                name,
            )

    def _warp(self, name: str, values: dict[str, Any], **more: Any) -> None:
        self._of_pictures(name)
        self._emit(
            name,
            interpolation=self._interpolation({**values, "antialias": True}),
            fill=self._fill(values["fill"]),
            **more,
        )

    def random_rotation(self, values: dict[str, Any]) -> None:
        """RandomRotation."""
        center = values["center"]
        self._warp(
            "random_rotation",
            values,
            degrees=_one_or_list(values["degrees"]),
            expand=values["expand"],
            center=[] if center is None else list(center),
        )

    def random_affine(self, values: dict[str, Any]) -> None:
        """RandomAffine."""
        given = {
            name: _one_or_list(values[name])
            for name in ("translate", "scale", "shear", "center")
            if values[name] is not None
        }
        self._warp("random_affine", values, degrees=_one_or_list(values["degrees"]), **given)

    def random_perspective(self, values: dict[str, Any]) -> None:
        """RandomPerspective."""
        given = {name: values[name] for name in ("distortion_scale", "p")}
        self._warp("random_perspective", values, **given)

    def elastic_transform(self, values: dict[str, Any]) -> None:
        """ElasticTransform, but for the edges, where torch's grid_sample differs."""
        given = {name: _one_or_list(values[name]) for name in ("alpha", "sigma")}
        self._warp("elastic_transform", values, **given)

    def gaussian_blur(self, values: dict[str, Any]) -> None:
        """GaussianBlur: also of tensors of bytes."""
        self._refuse_floats("gaussian_blur")
        self._emit(
            "gaussian_blur",
            kernel_size=_one_or_list(values["kernel_size"]),
            sigma=_one_or_list(values["sigma"]),
        )

    def gaussian_noise(self, values: dict[str, Any]) -> None:
        """GaussianNoise of bytes, which are clipped."""
        self._refuse_floats("gaussian_noise")
        if not values["clip"]:
            raise NoCounterpart("clip=False: the op clips, as bytes must be", "gaussian_noise")
        self._emit("gaussian_noise", mean=values["mean"], sigma=values["sigma"])

    def jpeg(self, values: dict[str, Any]) -> None:
        """JPEG."""
        self._refuse_floats("jpeg")
        self._emit("jpeg", quality=_one_or_list(values["quality"]))

    def linear_transformation(self, values: dict[str, Any]) -> None:
        """LinearTransformation of normalized images."""
        name = "linear_transformation"
        if self._normalized is None:
            raise NoCounterpart("the op does it behind Normalize, in its units", name)
        self._refuse_halves(name)
        rows = [listed(row) for row in listed(values["transformation_matrix"])]
        self._emit(name, transformation_matrix=rows, mean_vector=listed(values["mean_vector"]))

    # --- other colours

    def with_p(self, name: str, values: dict[str, Any], on_tensors: bool = True) -> None:
        """Translate a transform whose parameters are its op's."""
        if on_tensors:
            self._refuse_floats(name)
        else:
            self._of_pictures(name)
        self._emit(name, **values)

    def random_solarize(self, values: dict[str, Any]) -> None:
        """RandomSolarize."""
        self._refuse_floats("random_solarize")
        if 0 < values["threshold"] <= 1:
            raise NoCounterpart(
                f"threshold {values['threshold']} is of floats: of bytes it is from 0 to 255",
                "random_solarize",
            )
        self._emit("random_solarize", **values)

    def random_photometric_distort(self, values: dict[str, Any]) -> None:
        """RandomPhotometricDistort."""
        self._of_pictures("random_photometric_distort")
        ranges = {key: _one_or_list(value) for key, value in values.items()}
        self._emit("random_photometric_distort", **ranges)

    def augment(self, name: str, values: dict[str, Any]) -> None:
        """Translate those that choose among operations: their strengths are Pillow's."""
        given = dict(values)
        given.pop("interpolation")
        given.pop("fill")
        if "policy" in given:
            given["policy"] = getattr(given["policy"], "value", given["policy"])
        self._warp(name, values, **given)

    # --- sizes for detection

    def random_short_side(self, values: dict[str, Any]) -> None:
        """RandomShortestSize."""
        self._refuse_floats("random_short_side")
        self._emit(
            "random_short_side",
            min_size=listed(values["min_size"]),
            max_size=values["max_size"],
            interpolation=self._interpolation(values),
        )

    def random_resize(self, values: dict[str, Any]) -> None:
        """RandomResize."""
        self._refuse_floats("random_resize")
        self._emit(
            "random_resize",
            min_size=values["min_size"],
            max_size=values["max_size"],
            interpolation=self._interpolation(values),
        )

    def scale_jitter(self, values: dict[str, Any]) -> None:
        """ScaleJitter, which holds the first of two numbers against the width."""
        self._refuse_floats("scale_jitter")
        size = _one_or_list(values["target_size"])
        self._emit(
            "scale_jitter",
            target_size=size[::-1] if isinstance(size, list) else size,
            scale_range=listed(values["scale_range"]),
            interpolation=self._interpolation(values),
        )

    def random_zoom_out(self, values: dict[str, Any]) -> None:
        """RandomZoomOut."""
        self._emit(
            "random_zoom_out",
            side_range=listed(values["side_range"]),
            p=values["p"],
            fill=self._fill(values["fill"]),
        )

    # --- presets

    def image_classification(self, values: dict[str, Any]) -> None:
        """ImageClassification: what a model's `weights.transforms()` gives."""
        values = {**values, "max_size": None}
        self.resize({**values, "size": values["resize_size"]})
        self.center_crop({"size": values["crop_size"]})
        self._is_tensor = self._is_float = True
        self._unit = 255.0
        self.normalize(values)


def _one_or_list(value: Any) -> Any:
    """Return a list for a sequence, and one number as it is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
