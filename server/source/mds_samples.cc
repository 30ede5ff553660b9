#include "server/source/mds_samples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_message.h"

namespace feedwater::server {
namespace {

constexpr size_t kStoredTexts = 3;  // of a column

class MdsSamples final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong = absl::DataLossError("an mds index whose columns do not fit");
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<MdsSamples> samples(new MdsSamples(std::move(shards)));
    FW_ASSIGN_OR_RETURN(samples->begins_, parts.index->Numbers(kMdsBegins));
    FW_ASSIGN_OR_RETURN(samples->ends_, parts.index->Numbers(kMdsEnds));
    FW_ASSIGN_OR_RETURN(const TextColumn stored, parts.index->Texts(kMdsStored));
    if (samples->begins_.size() != static_cast<size_t>(parts.records) ||
        samples->ends_.size() != samples->shards().size() || stored.size() % kStoredTexts != 0 ||
        stored.size() / kStoredTexts > kMaxMdsColumns) {
      return wrong;
    }
    for (size_t i = 0; i < stored.size(); i += kStoredTexts) {
      samples->stored_.push_back(
          {std::string(stored[i]), std::string(stored[i + 1]), ParseMdsEncoding(stored[i + 1])});
      MdsEncoding& own = samples->stored_.back().encoding;
      uint64_t bytes = 0;
      if (!absl::SimpleAtoi(stored[i + 2], &bytes) ||
          (own.kind != MdsEncoding::Kind::kRefused && bytes != own.bytes)) {
        return wrong;
      }
      own.bytes = bytes;
      const auto column = std::find_if(columns.begin(), columns.end(), [&](const ColumnSpec& spec) {
        return spec.name == stored[i];
      });
      const auto number = static_cast<size_t>(column - columns.begin());
      Wanted place;
      if (column != columns.end() && wanted[number]) {
        const MdsEncoding& encoding = samples->stored_.back().encoding;
        using Kind = MdsEncoding::Kind;
        const bool is_text = encoding.kind == Kind::kBytes || encoding.kind == Kind::kText;
        if (encoding.kind == Kind::kRefused || is_text == column->is_numeric() ||
            (encoding.number != nullptr && encoding.number->dtype != column->dtype)) {
          return wrong;
        }
        place = {true, number, column->dtype, column->shape};
      }
      samples->wanted_.push_back(std::move(place));
    }
    return samples;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    extents->push_back(shards().Record(record, begins_, &ends_));
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    return ForEachMdsValue(stored_, AsText(bytes[0]), [&](size_t i, absl::string_view value) {
      if (!wanted_[i].is_wanted) return absl::OkStatus();
      const absl::Status read = ReadColumn(stored_[i].encoding, wanted_[i], value, values);
      if (read.ok()) return read;
      return WithMessage(
          read, absl::StrCat("column '", Printable(stored_[i].name), "' ", read.message()));
    });
  }

 private:
  struct Wanted {
    bool is_wanted = false;
    size_t number = 0;
    DType dtype = DType::kUInt8;
    Shape shape;
  };
  using ShardedColumns::ShardedColumns;

  static absl::Status ReadColumn(const MdsEncoding& encoding, const Wanted& wanted,
                                 absl::string_view value, ColumnValues* values) {
    using Kind = MdsEncoding::Kind;
    if (encoding.kind == Kind::kBytes || encoding.kind == Kind::kText) {
      values->SetBytes(wanted.number, value.data(), value.size());
      return absl::OkStatus();
    }
    MdsArray array{encoding.number, {}, value};
    if (encoding.kind != Kind::kNumber) {
      FW_ASSIGN_OR_RETURN(array, ReadMdsArray(encoding, value));
    }
    if (array.number->dtype != wanted.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("is an array of ", array.number->name,
                                                     " here, and of ", DTypeName(wanted.dtype),
                                                     " in others"));
    }
    if (array.shape.size() != wanted.shape.size()) {
      return absl::InvalidArgumentError(absl::StrCat("is an array of ", array.shape.size(),
                                                     " axes here, and of ", wanted.shape.size(),
                                                     " in others"));
    }
    if (!array.number->is_unsigned_wide()) {
      values->Set(wanted.number, array.elements.data(), array.elements.size(),
                  std::move(array.shape));
      return absl::OkStatus();
    }
    const size_t count = array.elements.size() / array.number->bytes;
    std::byte* to = nullptr;
    if (count <= ColumnValues::kMaxScratchBytes / sizeof(int64_t))
      to = values->Make(wanted.number, std::move(array.shape), count * sizeof(int64_t));
    if (to == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("has ", count, " elements, more than a record may have"));
    return CopyMdsUnsigned(*array.number, array.elements, to);
  }

  NumberColumn begins_, ends_;
  std::vector<MdsColumn> stored_;
  std::vector<Wanted> wanted_;  // by stored column
};

}  // namespace

absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenMdsSamples(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted) {
  return MdsSamples::Open(parts, columns, wanted);
}

}  // namespace feedwater::server
