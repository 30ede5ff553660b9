#include "server/source/coco_masks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"
#include "server/source/coco_segmentation.h"
#include "server/source/file_stream.h"
#include "server/source/instance_map.h"

namespace feedwater::server {
namespace {

constexpr size_t kPiece = 1 << 20;  // written at once
constexpr const char* kForm = "coco masks 2";

}  // namespace

absl::Status CocoMaskPlan::AddImage(int64_t width, int64_t height, IndexBuilder* builder) {
  // Lists double when they grow.
  FW_RETURN_IF_ERROR(builder->Take(2 * int64_t{sizeof(ImageSize) + sizeof(size_t)}));
  sizes_.push_back({width, height});
  starts_.push_back(starts_.back());
  return absl::OkStatus();
}

absl::Status CocoMaskPlan::AddInstance(const CocoAnnotations::Segment& segment, std::string name,
                                       IndexBuilder* builder) {
  FW_RETURN_IF_ERROR(
      builder->Take(2 * int64_t{sizeof(Instance)} + static_cast<int64_t>(name.size())));
  instances_.push_back({segment, std::move(name)});
  ++starts_.back();
  return absl::OkStatus();
}

// Writes the staged file, from the open file of annotations.
class CocoMaskWriter {
 public:
  // What is staged tells of the file by `name`, below its root: it is the same wherever that is.
  CocoMaskWriter(const CocoMaskPlan& plan, int from, std::string what, std::string name,
                 const StagedFolder::Append& append, IndexBuilder* builder)
      : plan_(plan),
        from_(from),
        what_(std::move(what)),
        name_(std::move(name)),
        append_(append),
        builder_(builder) {}

  absl::Status Write() {
    FW_RETURN_IF_ERROR(builder_->Take(kMaxSegmentationMemory + int64_t{kMaxSegmentationBytes} +
                                      3 * int64_t{kPiece}));
    const auto images = static_cast<int64_t>(plan_.images());
    FW_RETURN_IF_ERROR(builder_->Take((images + 1) * 3 * int64_t{sizeof(uint64_t)}));
    std::vector<uint64_t> begins;
    begins.reserve(plan_.images() + 1);
    uint64_t at = 0;
    for (size_t image = 0; image < plan_.images(); ++image) {
      FW_RETURN_IF_ERROR(Progress(image));
      absl::StatusOr<std::string> mask = MaskOf(image);
      if (absl::IsInvalidArgument(mask.status()))
        mask = absl::StrCat(std::string(1, kNoMask), mask.status().message());
      FW_RETURN_IF_ERROR(mask.status());
      begins.push_back(at);
      at += mask->size();
      FW_RETURN_IF_ERROR(Put(*mask));
    }
    begins.push_back(at);
    for (const uint64_t begin : begins)
      FW_RETURN_IF_ERROR(Put({reinterpret_cast<const char*>(&begin), sizeof(begin)}));
    return append_(piece_);
  }

 private:
  absl::Status Put(absl::string_view bytes) {
    piece_.append(bytes.data(), bytes.size());
    if (piece_.size() < kPiece) return absl::OkStatus();
    FW_RETURN_IF_ERROR(append_(piece_));
    piece_.clear();
    return absl::OkStatus();
  }

  // InvalidArgument: this image has none.
  absl::StatusOr<std::string> MaskOf(size_t image) {
    const auto [width, height] = plan_.sizes_[image];
    if (width == 0 || height == 0) {
      return absl::InvalidArgumentError(absl::StrCat("the image has no 'width' and 'height' in ",
                                                     name_, ", without which there is no mask; ",
                                                     kCureOfSizes));
    }
    FW_RETURN_IF_ERROR(InstanceMap::CheckSize(width, height));
    const size_t first = plan_.starts_[image], end = plan_.starts_[image + 1];
    if (end - first > InstanceMap::kMaxInstances) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the image has ", end - first, " boxes in ", name_, ", and a mask of 8 bits tells ",
          InstanceMap::kMaxInstances, " apart; cure: leave `masks` out of `fields`, or the image ",
          "out of the file"));
    }
    const int64_t bytes = InstanceMap::Bytes(width, height);
    if (bytes > taken_) FW_RETURN_IF_ERROR(builder_->Take(bytes - std::exchange(taken_, bytes)));
    map_.Begin(width, height);
    for (size_t i = first; i < end; ++i) {
      const CocoMaskPlan::Instance& instance = plan_.instances_[i];
      if (instance.segment.bytes == 0) continue;  // a box alone
      FW_RETURN_IF_ERROR(Progress(image));
      const absl::Status covered = Cover(instance.segment, static_cast<uint8_t>(i - first + 1));
      if (absl::IsInvalidArgument(covered)) {
        return absl::InvalidArgumentError(
            absl::StrCat(instance.name, " ", covered.message(), ", in ", name_));
      }
      FW_RETURN_IF_ERROR(covered);
    }
    return map_.Png();
  }

  absl::Status Progress(size_t image) const {
    return builder_->Progress(static_cast<int64_t>(image), static_cast<int64_t>(plan_.images()));
  }

  absl::Status Cover(const CocoAnnotations::Segment& segment, uint8_t label) {
    if (segment.bytes < 0) return OddSegmentation();
    // One that is too large is refused by its size.
    const auto bytes =
        static_cast<size_t>(std::min<int64_t>(segment.bytes, int64_t{kMaxSegmentationBytes} + 1));
    text_.resize(bytes);
    FW_RETURN_IF_ERROR(ReadFileAt(from_, segment.offset, text_.data(), bytes, what_));
    return CoverSegmentation(text_, label, &map_);
  }

  const CocoMaskPlan& plan_;
  const int from_;
  const std::string what_, name_;
  const StagedFolder::Append& append_;
  IndexBuilder* const builder_;
  InstanceMap map_;
  int64_t taken_ = 0;
  std::string text_, piece_;
};

absl::StatusOr<StagedMasks> StageCocoMasks(const DatasetLocation& location, const std::string& path,
                                           absl::string_view rule, const CocoMaskPlan& plan,
                                           IndexBuilder* builder) {
  const auto write = [&](int from, const StagedFolder::Append& append) {
    return CocoMaskWriter(plan, from, location.root->Describe(path),
                          absl::StrCat("'", Printable(path), "'"), append, builder)
        .Write();
  };
  StagedMasks masks;
  FW_ASSIGN_OR_RETURN(masks.file,
                      builder->Stage(*location.root, path, absl::StrCat(kForm, " ", rule),
                                     "has segmentations, of which masks are made when it is opened",
                                     "leave `masks` out of `fields`", write));
  const Root& staged = *builder->staged()->root();
  const std::string what = staged.Describe(masks.file.name);
  const auto numbers = static_cast<int64_t>(plan.images() + 1);
  const int64_t tail = numbers * int64_t{sizeof(uint64_t)};
  FW_RETURN_IF_ERROR(builder->Take(2 * tail));
  masks.begins.resize(static_cast<size_t>(numbers));
  const auto end = static_cast<uint64_t>(masks.file.bytes - tail);
  if (masks.file.bytes >= tail) {
    FW_ASSIGN_OR_RETURN(const Fd file, staged.OpenFile(masks.file.name, /*direct_io=*/false));
    FW_RETURN_IF_ERROR(ReadFileAt(file.get(), static_cast<int64_t>(end), masks.begins.data(),
                                  static_cast<size_t>(tail), what));
  }
  if (masks.file.bytes < tail || masks.begins.front() != 0 || masks.begins.back() != end ||
      !std::is_sorted(masks.begins.begin(), masks.begins.end())) {
    return absl::DataLossError(absl::StrCat(
        what, " holds no masks of these images; cure: remove the daemon's state_dir/staged, and ",
        "they are made again"));
  }
  return masks;
}

}  // namespace feedwater::server
