// Changes brightness, contrast, saturation and hue by random amounts in random order, as
// torchvision.transforms.ColorJitter does on PIL images, with Pillow's arithmetic. Grey images have
// no saturation and no hue to change.
#include <algorithm>
#include <array>
#include <cstring>

#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  JitterFactor brightness, contrast, saturation;
  HueShift hue;
};

// Pillow's ImageEnhance: from `base` towards `value` and beyond, cut off towards zero, saturated.
uint8_t Blend(int base, int value, float factor) {
  const float mixed = static_cast<float>(base) + factor * static_cast<float>(value - base);
  if (mixed <= 0.0f) return 0;
  if (mixed >= 255.0f) return 255;
  return static_cast<uint8_t>(mixed);
}

// Pillow's conversion to "L": ITU-R 601, 16 bits.
uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

void BlendWith(int base, float factor, uint8_t* pixels, int64_t values) {
  std::array<uint8_t, 256> table;
  for (int v = 0; v < 256; ++v) table[v] = Blend(base, v, factor);
  for (int64_t i = 0; i < values; ++i) pixels[i] = table[pixels[i]];
}

// The image's mean luma, rounded as Pillow does.
int MeanLuma(const uint8_t* pixels, int64_t count, int channels) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += channels == 3 ? Luma(pixels + 3 * i) : pixels[i];
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
}

void Saturate(float factor, uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i, pixels += 3) {
    const int grey = Luma(pixels);
    for (int c = 0; c < 3; ++c) pixels[c] = Blend(grey, pixels[c], factor);
  }
}

// For values from 0 to 255.
uint8_t Round(double value) { return static_cast<uint8_t>(static_cast<int>(value + 0.5)); }

// Pillow's RGB -> HSV -> RGB with `shift` added to the 8-bit hue in between; the same numbers, with
// less work per pixel.
void ShiftHue(uint8_t shift, uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i, pixels += 3) {
    const int r = pixels[0], g = pixels[1], b = pixels[2];
    const int high = std::max({r, g, b}), low = std::min({r, g, b});
    if (high == low) continue;
    const float range = static_cast<float>(high - low);
    const int saturation = static_cast<int>(range / static_cast<float>(high) * 255.0);
    if (saturation == 0) {
      pixels[0] = pixels[1] = pixels[2] = static_cast<uint8_t>(high);
      continue;
    }
    const float rc = static_cast<float>(high - r) / range,
                gc = static_cast<float>(high - g) / range,
                bc = static_cast<float>(high - b) / range;
    const float sixths = r == high   ? bc - gc
                         : g == high ? static_cast<float>(2.0 + rc - bc)
                                     : static_cast<float>(4.0 + gc - rc);
    const double turns = sixths / 6.0 + 1.0;  // from 5/6 to 11/6
    const float h = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
    const uint8_t hue = static_cast<uint8_t>(static_cast<int>(h * 255.0) + shift);

    const double turn = static_cast<float>(hue) * 6.0 / 255.0;
    const int sector = static_cast<int>(turn);  // 6 is 0 again
    const float f = static_cast<float>(turn - sector);
    const float s = static_cast<float>(saturation) / 255.0f;
    const uint8_t v = static_cast<uint8_t>(high);
    const uint8_t p = Round(high * (1.0 - s));
    const uint8_t q = Round(high * (1.0 - s * f));
    const uint8_t t = Round(high * (1.0 - s * (1.0 - f)));
    switch (sector) {
      case 1:
        pixels[0] = q, pixels[1] = v, pixels[2] = p;
        break;
      case 2:
        pixels[0] = p, pixels[1] = v, pixels[2] = t;
        break;
      case 3:
        pixels[0] = p, pixels[1] = q, pixels[2] = v;
        break;
      case 4:
        pixels[0] = t, pixels[1] = p, pixels[2] = v;
        break;
      case 5:
        pixels[0] = v, pixels[1] = p, pixels[2] = q;
        break;
      default:
        pixels[0] = v, pixels[1] = t, pixels[2] = p;
        break;
    }
  }
}

class ColorJitter : public Op {
 public:
  explicit ColorJitter(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    const int channels = static_cast<int>(ChannelsOf(input.spec));
    const Size size = ImageSizeOf(input.spec);
    const int64_t count = static_cast<int64_t>(size.width) * size.height;
    uint8_t* pixels = output.as<uint8_t>();
    std::memcpy(pixels, input.data, input.bytes());
    if (count == 0) return absl::OkStatus();

    // Order and amounts are drawn whether they are used or not, so that changing one range leaves
    // the other draws alone.
    std::array<int, 4> order = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[draws.Below(i + 1)]);
    const float brightness =
        static_cast<float>(draws.Uniform(params_.brightness.low, params_.brightness.high));
    const float contrast =
        static_cast<float>(draws.Uniform(params_.contrast.low, params_.contrast.high));
    const float saturation =
        static_cast<float>(draws.Uniform(params_.saturation.low, params_.saturation.high));
    const double hue = draws.Uniform(params_.hue.low, params_.hue.high);
    for (int what : order) {
      if (what == 0 && !IsNeutral(params_.brightness))
        BlendWith(0, brightness, pixels, count * channels);
      if (what == 1 && !IsNeutral(params_.contrast)) {
        BlendWith(MeanLuma(pixels, count, channels), contrast, pixels, count * channels);
      }
      if (channels != 3) continue;
      if (what == 2 && !IsNeutral(params_.saturation)) Saturate(saturation, pixels, count);
      if (what == 3 && (params_.hue.low != 0 || params_.hue.high != 0)) {
        ShiftHue(static_cast<uint8_t>(static_cast<int>(hue * 255)), pixels, count);
      }
    }
    return absl::OkStatus();
  }

 private:
  static bool IsNeutral(const JitterFactor& factor) { return factor.low == 1 && factor.high == 1; }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("color_jitter")
        .Summary(
            "Changes brightness, contrast, saturation and hue by random amounts in random order.")
        .Input({.field = "image",
                .layouts = {Layout::kHWC},
                .dtypes = {DType::kUInt8},
                .doc = "The image, RGB or grey."})
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("brightness", &Params::brightness,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 1 changes "
               "nothing, 0 is black.",
               Range(0, 1000))
        .Param("contrast", &Params::contrast,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 0 is grey "
               "of the mean brightness.",
               Range(0, 1000))
        .Param("saturation", &Params::saturation,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 0 is a grey "
               "image.",
               Range(0, 1000))
        .Param(
            "hue", &Params::hue,
            "Shift drawn from this range, in turns of the colour circle; a number x means [-x, x].",
            Range(-0.5, 0.5))
        .Cost(
            "Brightness and contrast a table look-up per value; saturation some and hue much more, "
            "because every pixel goes through HSV: leave hue out where it does not help the model.")
        .Example("- color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}")
        .Create<ColorJitter>());

}  // namespace
}  // namespace feedwater::server
