// Differential, from the other side: the input describes coefficients, from which a well-formed
// JPEG is written; so every input reaches the transforms, with values that no encoder makes. All
// levels must give the same pixels, and what is packed must come back.
// LIBS: feedwater_codec
#include "server/codec/jpeg/coefficient_store.h"
#include "tests/codec/coefficient_images.h"
#include "tests/codec/jpeg_levels.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server::testing;  // NOLINT: the images of the codec's tests
namespace jpeg = server::jpeg;

constexpr int kMaxSide = 48;
constexpr int kMaxMagnitude = 1023;  // of 8-bit JPEG

// sampling, width, height, steps; then for each block {how many coefficients, {zigzag place,
// value}}. Blocks that the input is too short for repeat it from the start.
CoefficientImage Describe(Input input) {
  Reader reader(input);
  CoefficientImage image;
  jpeg::FrameShape& shape = image.shape;
  const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}};
  const int kind = reader.Byte() % 5;
  shape.size = {1 + reader.Byte() % kMaxSide, 1 + reader.Byte() % kMaxSide};
  shape.components = kind == 4 ? 1 : 3;
  for (int c = 0; c < shape.components; ++c) {
    shape.h[c] = c == 0 && kind < 4 ? samplings[kind][0] : 1;
    shape.v[c] = c == 0 && kind < 4 ? samplings[kind][1] : 1;
  }
  const int steps = reader.Byte();
  for (int c = 0; c < shape.components; ++c) {
    for (int i = 0; i < 64; ++i)
      image.quant[c][i] = static_cast<uint16_t>(1 + (steps * (1 + i * (steps % 3))) % 255);
  }
  const Input blocks = reader.rest();
  for (int c = 0; c < shape.components; ++c) {
    image.coefficients[c].resize(static_cast<size_t>(shape.blocks_wide(c)) * shape.blocks_high(c) *
                                 64);
    for (size_t at = 0; at < image.coefficients[c].size(); at += 64) {
      if (reader.empty()) reader = Reader(blocks);
      for (int n = reader.Byte() % 65; n > 0; --n) {
        const int place = reader.Byte() % 64;
        // Small values are the usual ones.
        const auto small = static_cast<int8_t>(reader.Byte());
        int value = small;
        if (small % 8 == 7) value = small * 8 + reader.Byte() % 8;
        image.coefficients[c][at + place] =
            static_cast<int16_t>(std::clamp(value, -kMaxMagnitude, kMaxMagnitude));
      }
    }
  }
  return image;
}

void CheckDocument(const CoefficientImage& image, absl::Span<const std::byte> packed) {
  const absl::Span<const uint8_t> document(reinterpret_cast<const uint8_t*>(packed.data()),
                                           packed.size());
  Require(jpeg::VerifyStore(document).ok(), "a document that was packed verifies");
  const auto view = jpeg::StoreView::Open(document);
  Require(view.ok(), "a document that was packed opens");
  Require(view->shape() == image.shape, "a document has its image's shape");
  std::vector<int16_t> row;
  for (int c = 0; c < image.shape.components; ++c) {
    Require(std::equal(image.quant[c], image.quant[c] + 64, view->quant(c)), "steps are kept");
    const int wide = image.shape.blocks_wide(c);
    row.resize(static_cast<size_t>(wide) * 64);
    for (int y = 0; y < image.shape.blocks_high(c); ++y) {
      Require(view->UnpackRow(c, y, 0, wide, row.data()), "every row unpacks");
      Require(std::equal(row.begin(), row.end(), image.Row(c, y)), "coefficients are kept");
    }
  }
}

void Run(Input input) {
  static auto* levels = new JpegLevels;
  static auto* packer = new server::ImageWorkspace;
  const CoefficientImage image = Describe(input);
  const std::string encoded = EncodeCoefficients(image);
  ForTwoTargets(SeedOf(input), [&] {
    std::mt19937 random(SeedOf(input));
    const std::string difference = levels->Compare(encoded, 3, random);
    Require(difference.empty(), difference);
    const PaddedBytes file(AsBytes(encoded), 0);
    const auto packed = PackCoefficients(file.span(), server::ImageLimits(), *packer);
    if (!packed.empty()) CheckDocument(image, packed);
  });
}

std::vector<std::string> Seeds() {
  std::mt19937 random(1);
  std::vector<std::string> seeds;
  for (int i = 0; i < 40; ++i) {
    std::string seed;
    for (const int byte : {i % 5, 7 + i, 40 - i, 1 + i % 16 * 5}) seed += static_cast<char>(byte);
    for (int block = 0; block < 20; ++block) {
      const int count = static_cast<int>(random() % 12);
      seed += static_cast<char>(count);
      for (int k = 0; k < count; ++k) {
        seed += static_cast<char>(random() % 64);
        seed += static_cast<char>(random() % 31 - 15);
      }
    }
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 4096};
  return target;
}

}  // namespace feedwater::fuzz
