#include "server/source/annotated_images.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFiles = MakeIndexTag("file");
constexpr IndexTag kIds = MakeIndexTag("idno");
constexpr IndexTag kSizes = MakeIndexTag("size");
constexpr IndexTag kStarts = MakeIndexTag("boxs");
constexpr IndexTag kCorners = MakeIndexTag("corn");
constexpr IndexTag kLabels = MakeIndexTag("labl");
constexpr int kMaxNumbers = 10;
IndexTag TagOfNumber(size_t number) {
  const char text[5] = {'n', 'u', 'm', static_cast<char>('0' + number), 0};
  return MakeIndexTag(text);
}

constexpr size_t kCorners4 = 4;
constexpr int64_t kBytesPerBox = 64;     // of the lists while they grow, and once more
constexpr int64_t kBytesPerImage = 128;  // likewise, beside its name
constexpr char kFileName[] = "file_name";

// The columns that every such format has, in their order; those of its boxes' numbers follow.
enum Own : size_t { kFileColumn, kBoxes, kLabelColumn, kImageId, kWidth, kHeight, kOwnColumns };

std::vector<ColumnSpec> OwnColumns() {
  std::vector<ColumnSpec> own = {ColumnSpec::Text(kFileName),
                                 ColumnSpec::Array("boxes", DType::kFloat32, {-1, kCorners4}),
                                 ColumnSpec::Number("labels", DType::kInt64, {-1}),
                                 ColumnSpec::Number("image_id", DType::kInt64),
                                 ColumnSpec::Number("width", DType::kInt64),
                                 ColumnSpec::Number("height", DType::kInt64)};
  own[kFileColumn].doc = "Path of the image file below the dataset's.";
  own[kBoxes].doc = "Left, top, right and bottom edge of each box, in pixels.";
  own[kLabelColumn].doc = "Number of each box's class, from 0.";
  own[kImageId].doc = "Number of the image in the annotations.";
  own[kWidth].doc = "Of the image, as the annotations have it; 0: they do not.";
  own[kHeight].doc = "Of the image, as the annotations have it; 0: they do not.";
  return own;
}

class AnnotationColumns final : public RecordColumns {
 public:
  int64_t objects() const override { return 0; }
  std::string ObjectPath(uint32_t) const override { return ""; }
  int64_t ObjectBytes(uint32_t) const override { return 0; }
  std::vector<int64_t> shard_starts() const override { return {}; }
  void AddExtents(int64_t, std::vector<Extent>*) const override {}
  size_t extents_per_record() const override { return 0; }

  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong =
        absl::DataLossError("an index whose annotations do not fit together");
    const std::vector<ColumnSpec> own = OwnColumns();
    if (columns.size() < own.size() || columns.size() - own.size() > kMaxNumbers ||
        !std::equal(own.begin(), own.end(), columns.begin())) {
      return wrong;
    }
    std::unique_ptr<AnnotationColumns> made(new AnnotationColumns);
    const Index& index = *parts.index;
    const auto records = static_cast<size_t>(parts.records);
    FW_ASSIGN_OR_RETURN(made->files_, index.Texts(kFiles));
    FW_ASSIGN_OR_RETURN(made->ids_, index.Numbers(kIds));
    FW_ASSIGN_OR_RETURN(made->sizes_, index.Numbers(kSizes));
    FW_ASSIGN_OR_RETURN(made->starts_, index.Numbers(kStarts));
    FW_ASSIGN_OR_RETURN(made->corners_, index.Numbers(kCorners));
    FW_ASSIGN_OR_RETURN(made->labels_, index.Numbers(kLabels));
    const size_t boxes = made->labels_.size();
    if (made->files_.size() != records || made->ids_.size() != records ||
        made->sizes_.size() / 2 != records || made->sizes_.size() % 2 != 0 ||
        made->starts_.size() != records + 1 || !made->starts_.Divides(boxes) ||
        made->corners_.size() / kCorners4 != boxes || made->corners_.size() % kCorners4 != 0) {
      return wrong;
    }
    for (size_t i = own.size(); i < columns.size(); ++i) {
      const ColumnSpec& column = columns[i];
      if (!column.is_numeric() || column.shape != Shape{-1} ||
          (column.dtype != DType::kInt64 && column.dtype != DType::kFloat32)) {
        return wrong;
      }
      FW_ASSIGN_OR_RETURN(const NumberColumn numbers, index.Numbers(TagOfNumber(i - own.size())));
      if (numbers.size() != boxes) return wrong;
      made->numbers_.push_back({numbers, column.dtype});
    }
    made->wanted_ = wanted;
    return made;
  }

  absl::Status Read(int64_t record, RecordSpans, ColumnValues* values) const override {
    const auto image = static_cast<size_t>(record);
    const size_t begin = starts_[image], end = starts_[image + 1];
    if (wanted_[kFileColumn])
      values->SetBytes(kFileColumn, files_[image].data(), files_[image].size());
    if (wanted_[kImageId]) values->SetNumber(kImageId, static_cast<int64_t>(ids_[image]));
    if (wanted_[kWidth]) values->SetNumber(kWidth, static_cast<int64_t>(sizes_[2 * image]));
    if (wanted_[kHeight]) values->SetNumber(kHeight, static_cast<int64_t>(sizes_[2 * image + 1]));
    if (wanted_[kBoxes]) {
      const auto boxes = static_cast<int64_t>(end - begin);
      FW_RETURN_IF_ERROR((Fill<uint32_t>(corners_, kCorners4 * begin, kCorners4 * end, kBoxes,
                                         {boxes, kCorners4}, values)));
    }
    if (wanted_[kLabelColumn])
      FW_RETURN_IF_ERROR(Numbers(labels_, DType::kInt64, begin, end, kLabelColumn, values));
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (!wanted_[kOwnColumns + i]) continue;
      FW_RETURN_IF_ERROR(
          Numbers(numbers_[i].first, numbers_[i].second, begin, end, kOwnColumns + i, values));
    }
    return absl::OkStatus();
  }

 private:
  AnnotationColumns() = default;

  static absl::Status Numbers(const NumberColumn& from, DType dtype, size_t begin, size_t end,
                              size_t column, ColumnValues* values) {
    const Shape shape = {static_cast<int64_t>(end - begin)};
    return dtype == DType::kFloat32 ? Fill<uint32_t>(from, begin, end, column, shape, values)
                                    : Fill<int64_t>(from, begin, end, column, shape, values);
  }
  template <typename T>
  static absl::Status Fill(const NumberColumn& from, size_t begin, size_t end, size_t column,
                           Shape shape, ColumnValues* values) {
    std::byte* to = values->Make(column, std::move(shape), (end - begin) * sizeof(T));
    if (to == nullptr) return absl::InvalidArgumentError("has too many boxes");
    for (size_t i = begin; i < end; ++i, to += sizeof(T)) {
      const auto value = static_cast<T>(from[i]);
      std::memcpy(to, &value, sizeof(T));
    }
    return absl::OkStatus();
  }

  TextColumn files_;
  NumberColumn ids_, sizes_, starts_, corners_, labels_;
  std::vector<std::pair<NumberColumn, DType>> numbers_;
  std::vector<bool> wanted_;
};

}  // namespace

InvalidBoxes InvalidBoxesOf(absl::string_view word) {
  return word == "fail"   ? InvalidBoxes::kFail
         : word == "keep" ? InvalidBoxes::kKeep
                          : InvalidBoxes::kDrop;
}

absl::Status AnnotatedImages::AddImage(absl::string_view file_name, uint64_t id, uint64_t width,
                                       uint64_t height, IndexBuilder* builder) {
  FW_RETURN_IF_ERROR(builder->Take(kBytesPerImage + 2 * static_cast<int64_t>(file_name.size())));
  files_.Add(file_name);
  ids_.push_back(id);
  sizes_.push_back(width);
  sizes_.push_back(height);
  starts_.push_back(starts_.back());
  return absl::OkStatus();
}

absl::Status AnnotatedImages::AddBox(Box box, uint64_t label, const std::vector<uint64_t>& values,
                                     const std::string& what, IndexBuilder* builder) {
  if (!std::all_of(box.begin(), box.end(), [](float edge) { return std::isfinite(edge); }))
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a box that is not of finite numbers"));
  const auto width = static_cast<float>(sizes_[sizes_.size() - 2]);
  const auto height = static_cast<float>(sizes_[sizes_.size() - 1]);
  Box cut = box;
  for (size_t i = 0; i < box.size(); ++i) {
    const float most = i % 2 == 0 ? width : height;
    cut[i] = std::max(0.0f, most > 0 ? std::min(box[i], most) : box[i]);
  }
  const bool has_area = cut[0] < cut[2] && cut[1] < cut[3];
  if (invalid_ == InvalidBoxes::kFail && (cut != box || !has_area)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has the box [", box[0], ", ", box[1], ", ", box[2], ", ", box[3], "], ",
        has_area ? "which reaches beyond" : "which has no area in", " its image of ", width, "x",
        height, "; 'invalid_boxes: drop' leaves such boxes out, 'keep' takes them as they are"));
  }
  if (invalid_ == InvalidBoxes::kDrop) {
    if (!has_area) {
      ++dropped_;
      return absl::OkStatus();
    }
    cut_ += cut != box;
    box = cut;
  }
  FW_RETURN_IF_ERROR(builder->Take(kBytesPerBox + 16 * static_cast<int64_t>(numbers_.size())));
  for (float edge : box) corners_.push_back(std::bit_cast<uint32_t>(edge));
  labels_.push_back(label);
  for (size_t i = 0; i < values_.size(); ++i) values_[i].push_back(values[i]);
  ++starts_.back();
  return absl::OkStatus();
}

std::vector<ColumnSpec> AnnotatedImages::Columns() const {
  std::vector<ColumnSpec> columns = OwnColumns();
  for (const BoxNumber& number : numbers_) {
    columns.push_back(ColumnSpec::Number(number.name, number.dtype, {-1}));
    columns.back().doc = number.doc;
  }
  return columns;
}

void AnnotatedImages::AddTo(const DatasetLocation&, Digest digest, IndexBuilder* builder) const {
  builder->records = images();
  builder->columns.Add(kFiles, files_);
  const auto add = [&](IndexTag tag, const std::vector<uint64_t>& numbers) {
    builder->columns.Add(tag, numbers);
    digest.Add(static_cast<uint64_t>(numbers.size()));
    for (uint64_t number : numbers) digest.Add(number);
  };
  add(kIds, ids_);
  add(kSizes, sizes_);
  add(kStarts, starts_);
  add(kCorners, corners_);
  add(kLabels, labels_);
  for (size_t i = 0; i < values_.size(); ++i) add(TagOfNumber(i), values_[i]);
  builder->digest = digest.Hex();
  const auto note = [&](int64_t count, absl::string_view what) {
    if (count == 0) return;
    absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", FormatCount(count, "box"),
                    what);
  };
  note(cut_, " cut off at the image's edge");
  note(dropped_, " without area left out");
}

absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenAnnotatedImages(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted) {
  return AnnotationColumns::Open(parts, columns, wanted);
}

FieldRequests WithImageFile(FieldRequests requests) {
  for (FieldRequest& request : requests.list) {
    if (request.from != "data") continue;
    request.from = kFileName;
    request.is_file = true;
  }
  return requests;
}

std::vector<FieldRequest> ImageFileAnd(const std::vector<std::string>& columns) {
  std::vector<FieldRequest> all(1);
  all[0].name = "data";
  all[0].from = kFileName;
  all[0].is_file = true;
  for (const std::string& column : columns) {
    FieldRequest request;
    request.name = request.from = column;
    all.push_back(std::move(request));
  }
  return all;
}

absl::Status CheckHasImageFile(const FieldRequests& requests) {
  const bool has = requests.list.empty() ||
                   std::any_of(requests.list.begin(), requests.list.end(),
                               [](const FieldRequest& request) { return request.is_file; });
  if (has) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      requests.list[0].where,
      ": 'fields' has no image: add one such as 'data: data', the bytes of the image file"));
}

}  // namespace feedwater::server
