// The samples of .mds shards: the sizes of those columns that differ in size, 4 bytes each, then
// all values. A sample is one read. Any bytes are safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/column_format.h"
#include "server/source/mds_encoding.h"

namespace feedwater::server {

inline constexpr IndexTag kMdsBegins = MakeIndexTag("mdbe");  // first byte of each sample
inline constexpr IndexTag kMdsEnds = MakeIndexTag("mden");    // behind the last one of each shard
inline constexpr IndexTag kMdsStored =
    MakeIndexTag("mdst");  // name, encoding, bytes of each column
inline constexpr size_t kMaxMdsColumns = 10'000;

// A column as the samples have it.
struct MdsColumn {
  std::string name, encoding_name;
  MdsEncoding encoding;
};

// Gives the value of each column of a sample, in order. DataLoss where sizes and bytes do not fit.
template <typename Use>
absl::Status ForEachMdsValue(const std::vector<MdsColumn>& columns, absl::string_view sample,
                             const Use& use) {
  const absl::Status wrong =
      absl::DataLossError("its columns' sizes do not add up to the sample's");
  size_t sizes = 0;
  for (const MdsColumn& column : columns) sizes += column.encoding.bytes == 0 ? 4 : 0;
  if (sample.size() < sizes) return wrong;
  absl::string_view size_at = sample.substr(0, sizes), rest = sample.substr(sizes);
  for (size_t i = 0; i < columns.size(); ++i) {
    uint64_t bytes = columns[i].encoding.bytes;
    if (bytes == 0) {
      uint32_t size = 0;
      std::memcpy(&size, size_at.data(), sizeof(size));
      size_at.remove_prefix(sizeof(size));
      bytes = size;
    }
    if (bytes > rest.size()) return wrong;
    FW_RETURN_IF_ERROR(use(i, rest.substr(0, static_cast<size_t>(bytes))));
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  return rest.empty() ? absl::OkStatus() : wrong;
}

// The samples that an index tells of. DataLoss where its columns do not fit.
absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenMdsSamples(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted);

}  // namespace feedwater::server
