#include "server/source/shards.h"

#include <algorithm>

namespace feedwater::server {
namespace {

constexpr IndexTag kPaths = MakeIndexTag("SHPA");  // below the root, in record order
constexpr IndexTag kBytes = MakeIndexTag("SHBY");
constexpr IndexTag kUnpacked = MakeIndexTag("SHUN");  // 1: it lies among the unpacked files
constexpr IndexTag kStarts = MakeIndexTag("SHST");    // first record of each, and the end

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

}  // namespace

void ShardList::Add(const FoundFile& file, int64_t records) {
  files_.push_back(file);
  starts_.push_back(starts_.back() + static_cast<uint64_t>(records));
}

void ShardList::AddTo(const DatasetLocation& location, IndexBuilder* builder,
                      Digest* digest) const {
  TextList paths;
  std::vector<uint64_t> bytes, unpacked;
  for (size_t i = 0; i < files_.size(); ++i) {
    paths.Add(files_[i].path_to_read());
    unpacked.push_back(files_[i].staged != nullptr);
    bytes.push_back(static_cast<uint64_t>(files_[i].bytes));
    digest->Add(NameInDataset(location, files_[i].path));
    digest->Add(bytes.back());
    digest->Add(starts_[i + 1]);
  }
  builder->columns.Add(kPaths, paths);
  builder->columns.Add(kBytes, bytes);
  builder->columns.Add(kStarts, starts_);
  builder->columns.Add(kUnpacked, unpacked);
  builder->records = records();
}

absl::StatusOr<Shards> Shards::Open(const Index& index, int64_t records) {
  Shards shards;
  FW_ASSIGN_OR_RETURN(shards.paths_, index.Texts(kPaths));
  FW_ASSIGN_OR_RETURN(shards.bytes_, index.Numbers(kBytes));
  FW_ASSIGN_OR_RETURN(shards.starts_, index.Numbers(kStarts));
  FW_ASSIGN_OR_RETURN(shards.unpacked_, index.Numbers(kUnpacked));
  const size_t files = shards.paths_.size();
  if (files == 0 || files > UINT32_MAX || shards.bytes_.size() != files ||
      shards.unpacked_.size() != files || shards.starts_.size() != files + 1 ||
      !shards.starts_.Divides(static_cast<uint64_t>(records))) {
    return absl::DataLossError("an index whose files do not fit together");
  }
  for (size_t i = 0; i < files; ++i) {
    if (shards.bytes_[i] > kMaxBytes) return absl::DataLossError("an index of impossible files");
  }
  return shards;
}

std::vector<int64_t> Shards::FirstRecords() const {
  std::vector<int64_t> starts;
  for (uint32_t shard = 0; shard < size(); ++shard) {
    if (records(shard) > 0) starts.push_back(first(shard));
  }
  return starts;
}

Extent Shards::Part(uint32_t shard, uint64_t begin, uint64_t bytes) const {
  const auto most = static_cast<uint64_t>(this->bytes(shard));
  begin = std::min(begin, most);
  return {shard, static_cast<int64_t>(begin), static_cast<int64_t>(std::min(bytes, most - begin))};
}

Extent Shards::Record(int64_t record, const NumberColumn& begins, const NumberColumn* ends) const {
  const uint32_t shard = Of(record);
  const uint64_t begin = begins[static_cast<size_t>(record)];
  uint64_t end = 0;
  if (record + 1 < first(shard + 1)) {
    end = begins[static_cast<size_t>(record + 1)];
  } else {
    end = ends == nullptr ? bytes_[shard] : (*ends)[shard];
  }
  return Part(shard, begin, end > begin ? end - begin : 0);
}

}  // namespace feedwater::server
