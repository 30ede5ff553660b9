// Any bytes as a coefficient document: nothing is read outside it, and every SIMD target gives the
// same verdict. Documents whose checksum is right are among them, since a decoder does not look at
// it; VerifyStore must find every other one wrong.
// LIBS: feedwater_codec
#include <xxhash.h>

#include "server/codec/jpeg/coefficient_store.h"
#include "tests/codec/jpeg_levels.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server::testing;  // NOLINT: the images of the codec's tests
using server::Rect;
using server::Size;
namespace jpeg = server::jpeg;

constexpr size_t kHashAt = 8, kHashedFrom = 16;

server::ImageLimits Limits() {
  server::ImageLimits limits;
  limits.max_pixels = 1 << 16;
  return limits;
}

void UnpackAll(const jpeg::StoreView& view) {
  std::vector<int16_t> row;
  for (int c = 0; c < view.shape().components; ++c) {
    const int wide = view.shape().blocks_wide(c);
    row.resize(static_cast<size_t>(wide) * 64);
    for (int y = 0; y < view.shape().blocks_high(c); ++y) {
      for (const int column : {0, wide / 2, wide - 1})
        (void)view.UnpackRow(c, y, column, wide - column, row.data());
    }
  }
}

void Run(Input input) {
  static auto* workspace = new server::ImageWorkspace;
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()),
                                          input.size());
  // Without padding: the document brings its own.
  const auto info = jpeg::ReadStoreInfo(input);
  const bool verified = jpeg::VerifyStore(input).ok();
  uint64_t hash = 0;
  if (input.size() > kHashedFrom) {
    std::memcpy(&hash, input.data() + kHashAt, sizeof(hash));
    Require(
        !verified || hash == XXH3_64bits(input.data() + kHashedFrom, input.size() - kHashedFrom),
        "a document with a wrong checksum does not verify");
  }
  if (!info.ok()) return;
  const Size size = info->size;
  if (static_cast<int64_t>(size.width) * size.height > Limits().max_pixels) return;
  if (const auto view = jpeg::StoreView::Open(input); view.ok()) UnpackAll(*view);

  const PaddedBytes padded(bytes, 0x11);
  std::mt19937 random(SeedOf(input));
  for (int i = 0; i < 3; ++i) {
    const Rect crop = i == 0 ? Rect{0, 0, size.width, size.height} : RandomRect(size, random);
    const int scale = 2 << random() % 3;
    const bool smaller = i == 1 && std::min(crop.width, crop.height) >= scale;
    const server::Geometry geometry = smaller ? ScaledCrop(crop, scale) : CropOnly(crop);
    std::vector<std::byte> out(static_cast<size_t>(crop.width) * crop.height * 3);
    std::vector<absl::Status> verdicts;
    ForEachTarget([&](int64_t) {
      verdicts.push_back(DecodeInto(padded.span(), i == 2, Limits(), geometry,
                                    server::PixelFormat(), out.data(), *workspace));
      Require(verdicts.back() == verdicts.front(), "every SIMD target gives the same verdict");
      return true;
    });
  }
}

std::vector<std::string> Seeds() {
  std::mt19937 random(1);
  server::ImageWorkspace workspace;
  std::vector<std::string> seeds;
  for (int i = 0; i < 40; ++i) {
    JpegOptions options;
    options.quality = 20 + 2 * i;
    options.luma_h = 1 + i % 2;
    options.luma_v = 1 + i / 2 % 2;
    options.gray = i % 5 == 0;
    const Size size{1 + static_cast<int>(random() % 40), 1 + static_cast<int>(random() % 40)};
    const std::string encoded = EncodeJpeg(NoisyImage(size, options.gray ? 1 : 3, random), options);
    const PaddedBytes file(AsBytes(encoded), 0);
    const auto packed = PackCoefficients(file.span(), server::ImageLimits(), workspace);
    if (packed.empty()) continue;
    seeds.emplace_back(reinterpret_cast<const char*>(packed.data()), packed.size());
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 1 << 14};
  return target;
}

}  // namespace feedwater::fuzz
