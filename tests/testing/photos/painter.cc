#include "tests/testing/photos/painter.h"

#include <algorithm>
#include <cmath>

#include "server/base/philox.h"

namespace feedwater::testing {
namespace {

using Sampling = Photo::Sampling;

}  // namespace

// Fast words for grain, and the choices of one photo. Seeded by Philox, so photos are independent
// of each other.
class Painter::Random {
 public:
  Random(uint64_t seed, uint64_t number) {
    const auto words = server::Philox4x32(
        {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0},
        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    state_ = uint64_t{words[0]} << 32 | words[1];
  }
  uint64_t Next() {  // SplitMix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }
  float Between(float low, float high) { return low + Uniform() * (high - low); }
  int Int(int low, int high) {  // inclusive
    return low + static_cast<int>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(float p) { return Uniform() < p; }

 private:
  uint64_t state_;
};

// One octave: random values on a grid of cells, smoothly interpolated.
struct Painter::Noise {
  float cell_width, cell_height;  // pixels
  float amplitude;
};

void Painter::AddNoise(Random& random, const Noise& noise, std::vector<float>* plane) {
  const int columns = static_cast<int>(static_cast<float>(width_) / noise.cell_width) + 2;
  const int rows = static_cast<int>(static_cast<float>(height_) / noise.cell_height) + 2;
  grid_.resize(static_cast<size_t>(columns) * static_cast<size_t>(rows));
  for (size_t i = 0; i + 1 < grid_.size(); i += 2) {  // two values a word
    const uint64_t word = random.Next();
    grid_[i] = (static_cast<float>(word >> 40) * 0x1p-23f - 1) * noise.amplitude;
    grid_[i + 1] = (static_cast<float>(word & 0xffffff) * 0x1p-23f - 1) * noise.amplitude;
  }
  if (grid_.size() % 2 == 1) grid_.back() = random.Between(-noise.amplitude, noise.amplitude);

  const auto smooth = [](float t) { return t * t * (3 - 2 * t); };
  cell_.resize(static_cast<size_t>(width_));
  weight_.resize(static_cast<size_t>(width_));
  for (int x = 0; x < width_; ++x) {
    const float at = (static_cast<float>(x) + 0.5f) / noise.cell_width;
    cell_[static_cast<size_t>(x)] = static_cast<int>(at);
    weight_[static_cast<size_t>(x)] = smooth(at - std::floor(at));
  }
  row_.resize(static_cast<size_t>(columns));
  for (int y = 0; y < height_; ++y) {
    const float at = (static_cast<float>(y) + 0.5f) / noise.cell_height;
    const float* above = &grid_[static_cast<size_t>(at) * static_cast<size_t>(columns)];
    const float* below = above + columns;
    const float down = smooth(at - std::floor(at));
    for (int c = 0; c < columns; ++c)
      row_[static_cast<size_t>(c)] = above[c] + (below[c] - above[c]) * down;
    float* out = plane->data() + static_cast<size_t>(y) * static_cast<size_t>(width_);
    for (int x = 0; x < width_; ++x) {
      const float* left = &row_[static_cast<size_t>(cell_[static_cast<size_t>(x)])];
      out[x] += left[0] + (left[1] - left[0]) * weight_[static_cast<size_t>(x)];
    }
  }
}

// An ellipse or a turned box with its own colour, sharpness and softness of edge.
void Painter::AddShape(Random& random, float hue, float detail) {
  const auto width = static_cast<float>(width_), height = static_cast<float>(height_);
  const float center_x = random.Between(0, width), center_y = random.Between(0, height);
  const float radius_x = width * random.Between(0.04f, 0.3f),
              radius_y = height * random.Between(0.04f, 0.3f);
  const float turn = random.Between(0, 3.14159f);
  const float cosine = std::cos(turn), sine = std::sin(turn);
  const bool is_box = random.Chance(0.5f);
  const float softness = random.Chance(0.7f) ? random.Between(0.8f, 2) : random.Between(3, 25);
  const float light = random.Between(20, 235);
  const float shade_x = random.Between(-60, 60),
              shade_y = random.Between(-60, 60);  // across the shape
  const float angle = hue + random.Between(-1.2f, 1.2f), colour = random.Between(5, 60);
  const float red = colour * std::cos(angle), blue = colour * std::sin(angle);
  const float sharpness =
      random.Chance(0.3f) ? random.Between(0, 0.3f) : random.Between(0.5f, 1.7f);
  const float opacity = random.Between(0.75f, 1);

  const float reach = std::hypot(radius_x, radius_y) + softness;
  const int left = std::max(0, static_cast<int>(center_x - reach));
  const int right = std::min(width_, static_cast<int>(center_x + reach) + 1);
  const int top = std::max(0, static_cast<int>(center_y - reach));
  const int bottom = std::min(height_, static_cast<int>(center_y + reach) + 1);
  const float smallest = std::min(radius_x, radius_y);
  for (int y = top; y < bottom; ++y) {
    const size_t start = static_cast<size_t>(y) * static_cast<size_t>(width_);
    const float dy = static_cast<float>(y) - center_y;
    for (int x = left; x < right; ++x) {
      const float dx = static_cast<float>(x) - center_x;
      const float u = (dx * cosine + dy * sine) / radius_x,
                  v = (dy * cosine - dx * sine) / radius_y;
      // About how many pixels inside the edge.
      const float norm = is_box ? std::max(std::fabs(u), std::fabs(v)) : std::sqrt(u * u + v * v);
      const float cover = std::clamp((1 - norm) * smallest / softness + 0.5f, 0.0f, 1.0f) * opacity;
      if (cover == 0) continue;
      const size_t i = start + static_cast<size_t>(x);
      light_[i] += (light + shade_x * u + shade_y * v - light_[i]) * cover;
      red_[i] += (red - red_[i]) * cover;
      blue_[i] += (blue - blue_[i]) * cover;
      sharpness_[i] += (sharpness * detail - sharpness_[i]) * cover;
    }
  }
}

void Painter::Finish(Random& random, float grain, Photo* photo) {
  const size_t pixels = light_.size();
  photo->rgb.resize(pixels * 3);
  const float scale = grain / 65536;
  for (size_t i = 0; i < pixels; ++i) {
    // Triangular grain of brightness and, half as strong, of colour.
    const uint64_t word = random.Next();
    const auto part = [&](int shift) { return static_cast<float>(word >> shift & 0xffff); };
    const float light =
        light_[i] + texture_[i] * sharpness_[i] + (part(0) + part(16) - 65535) * scale;
    const float red =
        red_[i] + texture_[i] * sharpness_[i] * 0.12f + (part(32) - 32767.5f) * scale * 0.6f;
    const float blue =
        blue_[i] - texture_[i] * sharpness_[i] * 0.10f + (part(48) - 32767.5f) * scale * 0.6f;
    const auto byte = [](float value) {
      return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
    };
    photo->rgb[3 * i] = byte(light + 1.402f * red);
    photo->rgb[3 * i + 1] = byte(light - 0.714f * red - 0.344f * blue);
    photo->rgb[3 * i + 2] = byte(light + 1.772f * blue);
  }
}

void Painter::Paint(uint64_t seed, uint64_t number, int photo_class, Photo* photo) {
  Random random(seed, number);
  // Sizes: most have 500 pixels on the longer side, some are thumbnails, some come straight from a
  // camera.
  int longer = 500, shorter;
  if (const float kind = random.Uniform(); kind < 0.10f) {
    longer = random.Int(90, 400);
    shorter = random.Int(longer * 55 / 100, longer);
  } else if (kind < 0.17f) {
    longer = random.Chance(0.5f) ? 640 : random.Int(600, 1024);
    shorter = longer * 3 / 4;
  } else if (kind < 0.19f) {
    longer = random.Int(1024, 1600);
    shorter = longer * random.Int(60, 80) / 100;
  } else {
    const float ratio = random.Uniform();
    shorter = ratio < 0.5f ? 375 : ratio < 0.75f ? 333 : random.Int(281, 500);
  }
  const bool is_upright = random.Chance(0.27f);
  width_ = photo->width = is_upright ? shorter : longer;
  height_ = photo->height = is_upright ? longer : shorter;

  const float sampling = random.Uniform();
  photo->sampling = sampling < 0.76f   ? Sampling::k444
                    : sampling < 0.96f ? Sampling::k420
                    : sampling < 0.98f ? Sampling::k422
                                       : Sampling::kGray;
  const bool is_saved_well = photo->sampling == Sampling::k444 && random.Chance(0.9f);
  photo->quality = is_saved_well ? 95 : random.Int(75, 95);

  // The scene: a gradient of two colours, coarse light, then shapes, then what the shapes do not
  // hide.
  const size_t pixels = static_cast<size_t>(width_) * static_cast<size_t>(height_);
  const float hue =
      static_cast<float>(photo_class) * 2.399963f;  // the golden angle: neighbouring classes differ
  const float angle = hue + random.Between(-0.5f, 0.5f);
  const float colour_top = random.Between(0, 45), colour_bottom = random.Between(0, 45);
  const float light_top = random.Between(90, 240), light_bottom = random.Between(30, 170);
  // How busy the photo is: from a clear sky to a meadow.
  const float detail = 8 + 135 * random.Uniform();
  for (auto* plane : {&light_, &red_, &blue_, &sharpness_, &texture_}) plane->resize(pixels);
  for (int y = 0; y < height_; ++y) {
    const float down = static_cast<float>(y) / static_cast<float>(height_);
    const float colour = colour_top + (colour_bottom - colour_top) * down;
    const auto fill = [&](std::vector<float>& plane, float value) {
      std::fill_n(plane.data() + static_cast<size_t>(y) * static_cast<size_t>(width_), width_,
                  value);
    };
    fill(light_, light_top + (light_bottom - light_top) * down);
    fill(red_, colour * std::cos(angle));
    fill(blue_, colour * std::sin(angle));
    fill(sharpness_, detail * (0.15f + 0.75f * down * down));
    fill(texture_, 0);
  }
  const auto size = static_cast<float>(longer);
  for (float cell = size / 2; cell > 24; cell /= 2) {
    AddNoise(random, {cell, cell, 45 * cell / size}, &light_);
    AddNoise(random, {cell, cell, 25 * cell / size}, &red_);
    AddNoise(random, {cell, cell, 25 * cell / size}, &blue_);
  }
  const int shapes = random.Int(5, 22);
  for (int i = 0; i < shapes; ++i) AddShape(random, hue, detail);

  // Texture: amplitude falls with frequency; some grow in one direction, like fur, grass and cloth.
  const float stretch = random.Chance(0.5f) ? 1 : random.Between(1.2f, 4);
  const bool is_stretched_across = random.Chance(0.5f);
  for (const float cell : {16.0f, 8.0f, 4.0f, 2.3f, 1.4f}) {
    const float amplitude = std::pow(cell / 16, 0.55f);
    AddNoise(random,
             {is_stretched_across ? cell * stretch : cell,
              is_stretched_across ? cell : cell * stretch, amplitude},
             &texture_);
  }
  for (const float cell : {12.0f, 5.0f}) {
    AddNoise(random, {cell, cell, detail * 0.12f}, &red_);
    AddNoise(random, {cell, cell, detail * 0.12f}, &blue_);
  }
  const float grain = 1 + 9 * std::pow(random.Uniform(), 1.5f);
  Finish(random, grain, photo);
}

}  // namespace feedwater::testing
