// Every way to decode a JPEG, side by side: libjpeg-turbo, the own decoder without a seek index,
// with one that grows and with the whole one, a coefficient document. All must give the same pixels
// for the same region, at full size and decoded smaller, and a damaged stream the same verdict. A
// new way is one more member of `levels_` and its entry in Prepare.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#include "server/codec/image.h"
#include "tests/codec/seek_index_map.h"
#include "tests/codec/test_images.h"

namespace feedwater::server::testing {

// Bytes as decoders get them from a read buffer: followed by padding, whose content must not
// matter.
class PaddedBytes {
 public:
  PaddedBytes() = default;
  PaddedBytes(absl::Span<const std::byte> bytes, uint8_t padding)
      : bytes_(bytes.begin(), bytes.end()), size_(bytes.size()) {
    bytes_.insert(bytes_.end(), kPadding, static_cast<std::byte>(padding));
  }
  absl::Span<const std::byte> span() const { return absl::MakeConstSpan(bytes_).first(size_); }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr size_t kPadding = 64;  // kReadPadding of storage/engine.h, a floor next door
  std::vector<std::byte> bytes_;
  size_t size_ = 0;
};

class JpegLevels {
 public:
  explicit JpegLevels(const ImageLimits& limits = ImageLimits()) : limits_(limits) {
    turbo_.UseOwnDecoder(false);
    growing_.UseSeekIndexes(&grown_);
    whole_.UseSeekIndexes(&made_);
  }

  struct Outcome {
    absl::Status status;
    std::vector<uint8_t> pixels;
    friend bool operator==(const Outcome& a, const Outcome& b) {
      return a.status == b.status && (!a.status.ok() || a.pixels == b.pixels);
    }
  };

  // `regions - 1` random crops and at last the whole image, until which a seek index grows, at
  // every level; and of each crop a part at 1/2, 1/4 or 1/8. "" or the first difference.
  std::string Compare(absl::Span<const std::byte> encoded, int regions, std::mt19937& random) {
    const auto info = ReadImageInfo(encoded, false, limits_, own_);
    if (!info.ok()) return "";
    const uint64_t own_before = own_.counts().own_decoder;
    Prepare(encoded);
    std::string difference;
    for (int i = 0; i < regions && difference.empty(); ++i) {
      const Rect crop = i == regions - 1 ? Rect{0, 0, info->size.width, info->size.height}
                                         : RandomRect(info->size, random);
      difference = CompareCrop(CropOnly(crop));
      ++crops;
      const int scale = 2 << random() % 3;
      if (!difference.empty() || crop.width < scale || crop.height < scale) continue;
      // The verdict stays that on the whole of the last crop.
      const Outcome kept = verdict;
      difference = CompareCrop(ScaledCrop(PartFor(crop, scale, random), scale));
      verdict = kept;
      ++scaled_crops;
    }
    by_own += own_.counts().own_decoder > own_before;
    by_store += !document_.empty();
    by_index += made_.size() > 0;
    ++images;
    return difference;
  }
  std::string Compare(const std::string& encoded, int regions, std::mt19937& random) {
    return Compare(AsBytes(encoded), regions, random);
  }

  const DecodeCounts& own_counts() const { return own_.counts(); }
  const DecodeCounts& growing_counts() const { return growing_.counts(); }
  Outcome verdict;  // libjpeg-turbo's on the last crop

  // Compared, and of the images those that the own decoder, it with a whole index, and the store
  // took.
  int images = 0, crops = 0, scaled_crops = 0, by_own = 0, by_index = 0, by_store = 0;

 private:
  struct Level {
    const char* name;
    absl::Span<const std::byte> bytes;  // that this level decodes
    ImageWorkspace* workspace;
  };

  void Prepare(absl::Span<const std::byte> encoded) {
    file_ = PaddedBytes(encoded, 0);
    same_file_ = PaddedBytes(encoded, 0xa5);
    document_ = PaddedBytes(PackCoefficients(file_.span(), limits_, packer_), 0x5a);
    grown_.documents().clear();
    made_.documents().clear();
    MakeSeekIndex(same_file_.span(), limits_, whole_);
    levels_ = {{"own decoder", same_file_.span(), &own_},
               {"with an index that grows", same_file_.span(), &growing_},
               {"with its whole index", same_file_.span(), &whole_}};
    if (!document_.empty()) levels_.push_back({"coefficients", document_.span(), &store_});
  }

  // Of the crop; mostly such that its edges are those of samples at 1 / scale, which come out as
  // they are then, and else not.
  static Rect PartFor(const Rect& crop, int scale, std::mt19937& random) {
    if (random() % 4 == 0) return crop;
    const auto up = [scale](int n) { return (n + scale - 1) / scale * scale; };
    const int right = (crop.x + crop.width) / scale * scale;
    const int bottom = (crop.y + crop.height) / scale * scale;
    const Rect part{up(crop.x), up(crop.y), right - up(crop.x), bottom - up(crop.y)};
    return part.width > 0 && part.height > 0 ? part : crop;
  }

  std::string CompareCrop(const Geometry& geometry) {
    const Rect& crop = geometry.crop;
    verdict = Decode(file_.span(), geometry, turbo_);
    for (const Level& level : levels_) {
      const Outcome outcome = Decode(level.bytes, geometry, *level.workspace);
      if (outcome == verdict) continue;
      return absl::StrCat(level.name, ", region ", crop.width, "x", crop.height, "+", crop.x, "+",
                          crop.y, " to ", geometry.scaled.width, "x", geometry.scaled.height, ", ",
                          hwy::TargetName(BestTarget()), ": ", outcome.status.ToString(),
                          " and libjpeg-turbo ", verdict.status.ToString(),
                          Where(outcome, geometry.window));
    }
    return "";
  }

  Outcome Decode(absl::Span<const std::byte> encoded, const Geometry& geometry,
                 ImageWorkspace& workspace) {
    Outcome outcome;
    outcome.pixels.resize(static_cast<size_t>(geometry.window.width) * geometry.window.height * 3);
    outcome.status = DecodeInto(encoded, false, limits_, geometry, PixelFormat(),
                                reinterpret_cast<std::byte*>(outcome.pixels.data()), workspace);
    return outcome;
  }

  std::string Where(const Outcome& outcome, const Rect& window) const {
    if (!outcome.status.ok() || !verdict.status.ok()) return "";
    size_t differ = 0, first = 0;
    for (size_t i = outcome.pixels.size(); i-- > 0;) {
      if (outcome.pixels[i] == verdict.pixels[i]) continue;
      ++differ;
      first = i;
    }
    return absl::StrCat("; ", differ, " bytes differ, the first at x ", first / 3 % window.width,
                        " y ", first / 3 / window.width);
  }
  static int64_t BestTarget() {
    const int64_t targets = hwy::SupportedTargets();
    return targets & -targets;
  }

  const ImageLimits limits_;
  SeekIndexMap grown_, made_;
  ImageWorkspace turbo_, own_, growing_, whole_, store_, packer_;
  PaddedBytes file_, same_file_, document_;
  std::vector<Level> levels_;
};

// Runs `body` held to each SIMD target that this machine can run, the best one first; it returns
// whether to go on.
inline void ForEachTarget(const std::function<bool(int64_t target)>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    if (!body(target)) break;
  }
  hwy::SetSupportedTargetsForTest(0);
}

// The best target and the one that `draw` chooses: what a fuzzer does with each of many inputs.
inline void ForTwoTargets(uint32_t draw, const std::function<void()>& body) {
  const size_t targets = hwy::SupportedAndGeneratedTargets().size();
  size_t number = 0;
  ForEachTarget([&](int64_t) {
    if (number == 0 || number == draw % targets) body();
    ++number;
    return true;
  });
}

}  // namespace feedwater::server::testing
