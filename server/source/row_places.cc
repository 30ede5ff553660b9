#include "server/source/row_places.h"

#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/source/digest.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kBegins = MakeIndexTag("rbeg");  // byte at which each row begins
constexpr IndexTag kEnds = MakeIndexTag("rend");    // byte behind the last row of each file

}  // namespace

absl::Status RowList::Add(int64_t begin, int64_t end, const std::string& what,
                          IndexBuilder* builder) {
  const bool is_first = begins_.size() == first_;
  if (!is_first && begin - static_cast<int64_t>(begins_.back()) > kMaxRowBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " follows a row and empty lines of more than ",
                     FormatBytes(kMaxRowBytes), "; cure: take the empty lines out"));
  }
  begins_.push_back(static_cast<uint64_t>(begin));
  end_ = static_cast<uint64_t>(end);
  FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
  return builder->Progress(rows(), 0);
}

void RowList::EndFile(const FoundFile& file) {
  shards_.Add(file, static_cast<int64_t>(begins_.size() - first_));
  ends_.push_back(end_);
  first_ = begins_.size();
  end_ = 0;
}

void RowList::AddTo(absl::string_view format, const DatasetLocation& location,
                    IndexBuilder* builder) const {
  Digest digest;
  digest.Add(format);
  shards_.AddTo(location, builder, &digest);
  builder->digest = digest.Hex();
  builder->columns.Add(kBegins, begins_);
  builder->columns.Add(kEnds, ends_);
  if (blank_lines_ > 0) builder->notes = FormatCount(blank_lines_, "empty line");
}

absl::StatusOr<RowPlaces> RowPlaces::Open(const IndexedParts& parts) {
  RowPlaces places;
  FW_ASSIGN_OR_RETURN(places.shards, Shards::Open(*parts.index, parts.records));
  FW_ASSIGN_OR_RETURN(places.begins, parts.index->Numbers(kBegins));
  FW_ASSIGN_OR_RETURN(places.ends, parts.index->Numbers(kEnds));
  if (places.begins.size() != static_cast<size_t>(parts.records) ||
      places.ends.size() != places.shards.size()) {
    return absl::DataLossError("an index of rows whose columns do not fit together");
  }
  return places;
}

void RowColumns::AddExtents(int64_t record, std::vector<Extent>* extents) const {
  extents->push_back(shards().Record(record, begins_, &ends_));
}

}  // namespace feedwater::server
