// Images with boxes that stand in other files than the images: COCO, Pascal VOC. All annotations
// are read once, when the index is made, and are kept in it: 24 bytes a box and 4 for each further
// number. A record is an image file; its boxes come from the index, so a record is one read.
//
// Columns: `file_name`, below the dataset's path; `boxes` float32[?,4], left, top, right and bottom
// edge in pixels; `labels` int64[?]; `image_id`, `width` and `height`; `instance` int64[?], the
// number that a box's pixels have in the image's mask; and those of the format. Where masks are
// asked for, also `mask_file`, a path as `file_name`, or `masks`, bytes of a staged file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/source/column_format.h"
#include "server/source/digest.h"

namespace feedwater::server {

using Box = std::array<float, 4>;  // left, top, right, bottom

// A number that every box has besides: int64 that is not negative, or float32.
struct BoxNumber {
  std::string name;
  DType dtype = DType::kInt64;
  std::string doc;
};

// What becomes of a box that reaches beyond its image or has no area: `drop` cuts off what is
// outside, and leaves out what has no area then; `fail` refuses the dataset; `keep` takes boxes as
// they are written.
enum class InvalidBoxes { kDrop, kFail, kKeep };
InvalidBoxes InvalidBoxesOf(absl::string_view word);
inline constexpr char kInvalidBoxesDoc[] =
    "Boxes that reach beyond their image, or have no area. drop: they are cut off at the image's "
    "edges, and left out when nothing remains; fail: such a dataset is refused, with the first "
    "one; keep: all boxes are taken as they are written.";

// Masks that were made of the annotations, in a staged file: of each record a PNG, or kNoMask and
// why there is none, which makes it a bad sample.
struct StagedMasks {
  StagedFolder::File file;
  std::vector<uint64_t> begins;  // of each record, and the end of the last one
};
inline constexpr char kNoMask = '!';

// Collects them while an index is built.
class AnnotatedImages {
 public:
  AnnotatedImages(std::vector<BoxNumber> numbers, InvalidBoxes invalid)
      : numbers_(std::move(numbers)), invalid_(invalid), values_(numbers_.size()) {}

  // Boxes are of the image that was added last. `width` and `height` are 0 where nobody knows them:
  // nothing is cut off at those edges then. `what` names the box, for errors; `values`: a number
  // for each BoxNumber, of float32 ones its bits.
  absl::Status AddImage(absl::string_view file_name, uint64_t id, uint64_t width, uint64_t height,
                        IndexBuilder* builder);
  absl::Status AddBox(Box box, uint64_t label, const std::vector<uint64_t>& values,
                      const std::string& what, IndexBuilder* builder);
  int64_t images() const { return static_cast<int64_t>(ids_.size()); }
  size_t boxes() const { return labels_.size(); }

  // Of the image that was added last: where its mask lies. For all images or for none.
  absl::Status AddMaskFile(absl::string_view path, IndexBuilder* builder);
  // Masks number the boxes as they were added, those that were left out included. Without it they
  // number those that are there.
  void NumberAsAdded() { numbers_as_added_ = true; }
  void SetMasks(StagedMasks masks) { masks_ = std::move(masks); }

  // Adds the sections, the number of records, notes, and all of it to the digest.
  void AddTo(const DatasetLocation& location, Digest digest, IndexBuilder* builder) const;
  std::vector<ColumnSpec> Columns() const;

 private:
  const std::vector<BoxNumber> numbers_;
  const InvalidBoxes invalid_;
  TextList files_;
  std::vector<uint64_t> ids_, sizes_;   // width and height of each
  std::vector<uint64_t> starts_ = {0};  // first box of each image, and the end
  std::vector<uint64_t> corners_;       // bits of float32, four a box
  std::vector<uint64_t> labels_;
  std::vector<std::vector<uint64_t>> values_;  // by number
  bool numbers_as_added_ = false;
  uint64_t added_ = 0;               // boxes of the last image
  std::vector<uint64_t> instances_;  // of the boxes, where numbers_as_added_
  TextList mask_files_;
  std::optional<StagedMasks> masks_;
  int64_t cut_ = 0, dropped_ = 0;  // boxes
  int64_t unsized_ = 0;            // images without width or height
};

// The same from an index. `columns` are those of AnnotatedImages::Columns.
absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenAnnotatedImages(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted);

// `fields:` with `data` as the image file's bytes, which is no column but the file that
// `file_name` names; with `has_mask_files` also `masks` as those that `mask_file` names.
FieldRequests WithImageFile(FieldRequests requests, bool has_mask_files);
// `data` and these columns, when `fields:` is left out.
std::vector<FieldRequest> ImageFileAnd(const std::vector<std::string>& columns);
// InvalidArgument where no field is a file: a record would have no bytes of its own.
absl::Status CheckHasImageFile(const FieldRequests& requests);

// What formats of such images share.
class AnnotatedImagesFormat : public ColumnFormat {
 protected:
  AnnotatedImagesFormat(FieldRequests requests, bool has_mask_files)
      : ColumnFormat(WithImageFile(std::move(requests), has_mask_files)) {}
  // Whether `fields:` names this column, alone or as one of several.
  bool AsksFor(absl::string_view column) const;
  // A mask that cannot be made is its record's alone, whatever else the index asks of all records.
  bool IsSurveyed(const ColumnSpec& column) const override { return column.name != "masks"; }
  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return OpenAnnotatedImages(parts, columns, wanted);
  }
};

}  // namespace feedwater::server
