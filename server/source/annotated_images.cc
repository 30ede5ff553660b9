#include "server/source/annotated_images.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFiles = MakeIndexTag("file");
constexpr IndexTag kIds = MakeIndexTag("idno");
constexpr IndexTag kSizes = MakeIndexTag("size");
constexpr IndexTag kStarts = MakeIndexTag("boxs");
constexpr IndexTag kCorners = MakeIndexTag("corn");
constexpr IndexTag kLabels = MakeIndexTag("labl");
constexpr IndexTag kInstances = MakeIndexTag("inst");  // none where they are 1, 2, ...
constexpr IndexTag kMaskFiles = MakeIndexTag("mskf");
constexpr IndexTag kMasks = MakeIndexTag("mskn");       // the staged file's name
constexpr IndexTag kMaskBegins = MakeIndexTag("mskb");  // of each record in it, and the end
constexpr IndexTag kMaskBytes = MakeIndexTag("mskl");   // of the staged file
constexpr int kMaxNumbers = 10;
IndexTag TagOfNumber(size_t number) {
  const char text[5] = {'n', 'u', 'm', static_cast<char>('0' + number), 0};
  return MakeIndexTag(text);
}

constexpr size_t kCorners4 = 4;
constexpr int64_t kBytesPerBox = 64;     // of the lists while they grow, and once more
constexpr int64_t kBytesPerImage = 128;  // likewise, beside its name
constexpr char kFileName[] = "file_name", kMaskFile[] = "mask_file", kMasksColumn[] = "masks";
constexpr absl::string_view kPngMagic = "\x89PNG";
constexpr size_t kMaxReason = 500;  // why there is no mask

// The columns that every such format has, in their order; those of its boxes' numbers follow.
enum Own : size_t {
  kFileColumn,
  kBoxes,
  kLabelColumn,
  kImageId,
  kWidth,
  kHeight,
  kInstance,
  kOwnColumns
};

std::vector<ColumnSpec> OwnColumns() {
  std::vector<ColumnSpec> own = {ColumnSpec::Text(kFileName),
                                 ColumnSpec::Array("boxes", DType::kFloat32, {-1, kCorners4}),
                                 ColumnSpec::Number("labels", DType::kInt64, {-1}),
                                 ColumnSpec::Number("image_id", DType::kInt64),
                                 ColumnSpec::Number("width", DType::kInt64),
                                 ColumnSpec::Number("height", DType::kInt64),
                                 ColumnSpec::Number("instance", DType::kInt64, {-1})};
  own[kFileColumn].doc = "Path of the image file below the dataset's.";
  own[kBoxes].doc = "Left, top, right and bottom edge of each box, in pixels.";
  own[kLabelColumn].doc = "Number of each box's class, from 0.";
  own[kImageId].doc = "Number of the image in the annotations.";
  own[kWidth].doc = "Of the image, as the annotations have it; 0: they do not.";
  own[kHeight].doc = "Of the image, as the annotations have it; 0: they do not.";
  own[kInstance].doc = "Number that each box's pixels have in `masks`, from 1.";
  return own;
}

class AnnotationColumns final : public RecordColumns {
 public:
  // The staged file of masks is the only one.
  int64_t objects() const override { return reads_masks() ? 1 : 0; }
  std::string ObjectPath(uint32_t) const override { return mask_path_; }
  bool IsUnpacked(uint32_t) const override { return true; }
  int64_t ObjectBytes(uint32_t) const override { return mask_bytes_; }
  std::vector<int64_t> shard_starts() const override { return {}; }
  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    if (!reads_masks()) return;
    const auto image = static_cast<size_t>(record);
    const uint64_t begin = mask_begins_[image];
    extents->push_back(
        {0, static_cast<int64_t>(begin), static_cast<int64_t>(mask_begins_[image + 1] - begin)});
  }
  size_t extents_per_record() const override { return reads_masks() ? 1 : 0; }

  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong =
        absl::DataLossError("an index whose annotations do not fit together");
    const std::vector<ColumnSpec> own = OwnColumns();
    if (columns.size() < own.size() || columns.size() - own.size() > kMaxNumbers + 1 ||
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
    made->wanted_ = wanted;
    FW_ASSIGN_OR_RETURN(const bool has_masks, made->OpenMasks(index, columns.back(), records));
    for (size_t i = own.size(); i + (has_masks ? 1 : 0) < columns.size(); ++i) {
      const ColumnSpec& column = columns[i];
      if (!column.is_numeric() || column.shape != Shape{-1} ||
          (column.dtype != DType::kInt64 && column.dtype != DType::kFloat32)) {
        return wrong;
      }
      FW_ASSIGN_OR_RETURN(const NumberColumn numbers, index.Numbers(TagOfNumber(i - own.size())));
      if (numbers.size() != boxes || made->numbers_.size() == kMaxNumbers) return wrong;
      made->numbers_.push_back({numbers, column.dtype});
    }
    FW_ASSIGN_OR_RETURN(made->instances_, index.Numbers(kInstances));
    if (made->instances_.size() != 0 && made->instances_.size() != boxes) return wrong;
    return made;
  }

  absl::Status Read(int64_t record, RecordSpans bytes, ColumnValues* values) const override {
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
    if (wanted_[kInstance]) FW_RETURN_IF_ERROR(Instances(begin, end, values));
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (!wanted_[kOwnColumns + i]) continue;
      FW_RETURN_IF_ERROR(
          Numbers(numbers_[i].first, numbers_[i].second, begin, end, kOwnColumns + i, values));
    }
    if (mask_column_ == 0 || !wanted_[mask_column_]) return absl::OkStatus();
    if (mask_files_.has_value()) {
      const absl::string_view path = (*mask_files_)[image];
      values->SetBytes(mask_column_, path.data(), path.size());
      return absl::OkStatus();
    }
    return ReadMask(bytes[0], values);
  }

 private:
  AnnotationColumns() = default;

  bool reads_masks() const {
    return mask_column_ != 0 && !mask_files_.has_value() && wanted_[mask_column_];
  }

  // Whether the last column is masks, or files of them.
  absl::StatusOr<bool> OpenMasks(const Index& index, const ColumnSpec& last, size_t records) {
    const absl::Status wrong = absl::DataLossError("an index whose masks do not fit together");
    const bool are_files = last == ColumnSpec::Text(kMaskFile);
    if (!are_files && last != ColumnSpec::Bytes(kMasksColumn)) return false;
    mask_column_ = wanted_.size() - 1;
    if (are_files) {
      FW_ASSIGN_OR_RETURN(mask_files_, index.Texts(kMaskFiles));
      return mask_files_->size() == records ? absl::StatusOr<bool>(true) : wrong;
    }
    FW_ASSIGN_OR_RETURN(const TextColumn name, index.Texts(kMasks));
    FW_ASSIGN_OR_RETURN(const NumberColumn bytes, index.Numbers(kMaskBytes));
    FW_ASSIGN_OR_RETURN(mask_begins_, index.Numbers(kMaskBegins));
    if (name.size() != 1 || bytes.size() != 1 || bytes[0] > uint64_t{INT64_MAX} ||
        mask_begins_.size() != records + 1 || mask_begins_[records] > bytes[0] ||
        !mask_begins_.Divides(mask_begins_[records])) {
      return wrong;
    }
    mask_path_ = std::string(name[0]);
    mask_bytes_ = static_cast<int64_t>(bytes[0]);
    return true;
  }

  absl::Status ReadMask(absl::Span<const std::byte> bytes, ColumnValues* values) const {
    const absl::string_view text = AsText(bytes);
    if (absl::StartsWith(text, kPngMagic)) {
      values->SetBytes(mask_column_, bytes.data(), bytes.size());
      return absl::OkStatus();
    }
    if (text.empty() || text[0] != kNoMask)
      return absl::DataLossError("has other bytes where its mask was staged");
    return absl::InvalidArgumentError(
        absl::StrCat("has no mask: ", Escaped(text.substr(1, kMaxReason))));
  }

  absl::Status Instances(size_t begin, size_t end, ColumnValues* values) const {
    const Shape shape = {static_cast<int64_t>(end - begin)};
    if (instances_.size() > 0)
      return Fill<int64_t>(instances_, begin, end, kInstance, shape, values);
    std::byte* to = values->Make(kInstance, shape, (end - begin) * sizeof(int64_t));
    if (to == nullptr) return absl::InvalidArgumentError("has too many boxes");
    for (int64_t i = 1; i <= shape[0]; ++i, to += sizeof(i)) std::memcpy(to, &i, sizeof(i));
    return absl::OkStatus();
  }

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
  NumberColumn instances_;  // empty: 1, 2, ... of each image
  size_t mask_column_ = 0;  // 0: there is none
  std::optional<TextColumn> mask_files_;
  NumberColumn mask_begins_;
  std::string mask_path_;
  int64_t mask_bytes_ = 0;
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
  unsized_ += width == 0 || height == 0;
  starts_.push_back(starts_.back());
  added_ = 0;
  return absl::OkStatus();
}

absl::Status AnnotatedImages::AddMaskFile(absl::string_view path, IndexBuilder* builder) {
  FW_RETURN_IF_ERROR(builder->Take(2 * static_cast<int64_t>(path.size() + sizeof(uint64_t))));
  mask_files_.Add(path);
  return absl::OkStatus();
}

absl::Status AnnotatedImages::AddBox(Box box, uint64_t label, const std::vector<uint64_t>& values,
                                     const std::string& what, IndexBuilder* builder) {
  if (!std::all_of(box.begin(), box.end(), [](float edge) { return std::isfinite(edge); }))
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a box that is not of finite numbers"));
  const auto width = static_cast<float>(sizes_[sizes_.size() - 2]);
  const auto height = static_cast<float>(sizes_[sizes_.size() - 1]);
  ++added_;
  Box cut = box;
  for (size_t i = 0; i < box.size(); ++i) {
    const float most = i % 2 == 0 ? width : height;
    cut[i] = std::max(0.0f, most > 0 ? std::min(box[i], most) : box[i]);
  }
  const bool has_area = cut[0] < cut[2] && cut[1] < cut[3];
  if (invalid_ == InvalidBoxes::kFail && (cut != box || !has_area)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has the box [", box[0], ", ", box[1], ", ", box[2], ", ", box[3], "], ",
        has_area ? "which reaches beyond" : "which has no area in", " its image",
        width > 0 && height > 0 ? absl::StrCat(" of ", width, "x", height) : "",
        "; 'invalid_boxes: drop' leaves such boxes out, 'keep' takes them as they are"));
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
  if (numbers_as_added_) {
    FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
    instances_.push_back(added_);
  }
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
  if (mask_files_.size() > 0) columns.push_back(ColumnSpec::Text(kMaskFile));
  if (masks_.has_value()) {
    columns.push_back(ColumnSpec::Bytes(kMasksColumn));
    columns.back().doc =
        "A PNG of labels for `decode: {mode: index}`: each pixel holds the number of its instance, "
        "from 1 in the order of the boxes; 0: it has none.";
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
  if (dropped_ > 0 && numbers_as_added_) {
    add(kInstances, instances_);
  } else {
    builder->columns.Add(kInstances, std::vector<uint64_t>());
  }
  if (mask_files_.size() > 0) builder->columns.Add(kMaskFiles, mask_files_);
  if (masks_.has_value()) {
    TextList name;
    name.Add(masks_->file.name);
    builder->columns.Add(kMasks, name);
    builder->columns.Add(kMaskBytes,
                         std::vector<uint64_t>{static_cast<uint64_t>(masks_->file.bytes)});
    add(kMaskBegins, masks_->begins);
  }
  builder->digest = digest.Hex();
  const auto note = [&](int64_t count, absl::string_view of, absl::string_view what) {
    if (count == 0) return;
    absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", FormatCount(count, of),
                    what);
  };
  note(cut_, "box", " cut off at the image's edge");
  note(dropped_, "box", " without area left out");
  if (invalid_ == InvalidBoxes::kKeep || boxes() == 0) return;
  note(unsized_, "image",
       " without width and height, whose boxes may reach beyond the right and the lower edge");
}

absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenAnnotatedImages(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted) {
  return AnnotationColumns::Open(parts, columns, wanted);
}

FieldRequests WithImageFile(FieldRequests requests, bool has_mask_files) {
  for (FieldRequest& request : requests.list) {
    const bool is_mask = has_mask_files && request.from == kMasksColumn;
    if (request.from != "data" && !is_mask) continue;
    request.from = is_mask ? kMaskFile : kFileName;
    request.is_file = true;
  }
  return requests;
}

bool AnnotatedImagesFormat::AsksFor(absl::string_view column) const {
  for (const FieldRequest& request : requests().list) {
    for (const absl::string_view name : absl::StrSplit(request.from, ';')) {
      if (absl::StripAsciiWhitespace(name) == column) return true;
    }
  }
  return false;
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
