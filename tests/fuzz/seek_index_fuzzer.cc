// Any bytes as the seek index of an image: what is decoded with it is wrong or refused, and nothing
// is read or written outside. What can be read as an index says the same when written again, and
// the true one gives the true pixels.
//
//   input: number of the image, then the document
// LIBS: feedwater_codec
#include "server/codec/jpeg/seek_index.h"
#include "tests/codec/jpeg_levels.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server::testing;  // NOLINT: the images of the codec's tests
using server::Rect;
using server::Size;
namespace jpeg = server::jpeg;

// Gives the same document for every image, and keeps none.
class OneDocument final : public server::SeekIndexes {
 public:
  explicit OneDocument(Input document) {
    const auto* begin = reinterpret_cast<const std::byte*>(document.data());
    document_.assign(begin, begin + document.size());
  }
  bool Find(const server::ContentHash&, std::vector<std::byte>* document) const override {
    *document = document_;
    return true;
  }
  void Put(const server::ContentHash&, absl::Span<const std::byte>) override {}

 private:
  std::vector<std::byte> document_;
};

struct Picture {
  Size size;
  PaddedBytes file;
  std::vector<std::byte> index;
};

const std::vector<Picture>& Pictures() {
  static const auto* pictures = [] {
    auto* made = new std::vector<Picture>;
    std::mt19937 random(1);
    const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}};
    for (int i = 0; i < 6; ++i) {
      JpegOptions options;
      options.gray = i == 4;
      options.luma_h = i < 4 ? samplings[i][0] : 1;
      options.luma_v = i < 4 ? samplings[i][1] : 1;
      Picture picture;
      picture.size = {60 + 17 * i, 90 - 7 * i};
      const std::string encoded =
          EncodeJpeg(NoisyImage(picture.size, options.gray ? 1 : 3, random), options);
      picture.file = PaddedBytes(AsBytes(encoded), 0);
      SeekIndexMap indexes;
      server::ImageWorkspace workspace;
      workspace.UseSeekIndexes(&indexes);
      Require(MakeSeekIndex(picture.file.span(), server::ImageLimits(), workspace),
              "a good image has an index");
      picture.index = indexes.documents().begin()->second;
      made->push_back(std::move(picture));
    }
    return made;
  }();
  return *pictures;
}

std::vector<std::byte> DecodeCrop(const Picture& picture, const Rect& crop,
                                  server::ImageWorkspace& workspace, absl::Status* status) {
  std::vector<std::byte> out(static_cast<size_t>(crop.width) * crop.height * 3);
  *status = DecodeInto(picture.file.span(), false, server::ImageLimits(), CropOnly(crop),
                       server::PixelFormat(), out.data(), workspace);
  return out;
}

void Run(Input input) {
  static auto* workspace = new server::ImageWorkspace;
  static auto* plain = new server::ImageWorkspace;
  Reader reader(input);
  const Picture& picture = Pictures()[reader.Byte() % Pictures().size()];
  const Input document = reader.rest();
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(document.data()),
                                          document.size());
  for (const int components : {1, 3}) {
    jpeg::SeekIndex index;
    for (const int mcus : {1, 30, 1000}) {
      if (!index.Decode(bytes, components, mcus)) continue;
      std::vector<std::byte> again;
      index.Encode(&again);
      jpeg::SeekIndex same;
      Require(same.Decode(again, components, mcus), "an index that was written can be read");
      Require(
          same.mcus == index.mcus && same.spacing == index.spacing && same.points == index.points,
          "an index says the same when written again");
    }
  }
  OneDocument indexes(document);
  workspace->UseSeekIndexes(&indexes);
  const bool is_true = bytes == absl::MakeConstSpan(picture.index);
  std::mt19937 random(SeedOf(input));
  ForEachTarget([&](int64_t) {
    absl::Status status, plain_status;
    const Rect crop = RandomRect(picture.size, random);
    const auto pixels = DecodeCrop(picture, crop, *workspace, &status);
    if (!is_true) return true;
    const auto true_pixels = DecodeCrop(picture, crop, *plain, &plain_status);
    Require(status.ok() && plain_status.ok() && pixels == true_pixels,
            "the true index gives the true pixels");
    return true;
  });
  workspace->UseSeekIndexes(nullptr);
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (size_t i = 0; i < Pictures().size(); ++i) {
    const auto& index = Pictures()[i].index;
    seeds.push_back(static_cast<char>(i) +
                    std::string(reinterpret_cast<const char*>(index.data()), index.size()));
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 2048};
  return target;
}

}  // namespace feedwater::fuzz
