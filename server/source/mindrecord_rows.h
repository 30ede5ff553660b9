// The rows of MindRecord files: a MessagePack map, and a blob of the images and arrays beside it. A
// record is one read in the row's page and one in the blob's; what no field asks for is not read.
// Any bytes are safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/column_format.h"
#include "server/source/msgpack_reader.h"

namespace feedwater::server {

inline constexpr IndexTag kMindRecordRows =
    MakeIndexTag("mrrb");  // first byte of each record's row
inline constexpr IndexTag kMindRecordBlobs = MakeIndexTag("mrbb");  // and of its blob
inline constexpr IndexTag kMindRecordGroups =
    MakeIndexTag("mrgr");  // first record of each row group
inline constexpr IndexTag kMindRecordRowEnds =
    MakeIndexTag("mrre");  // behind the last row of each row group
inline constexpr IndexTag kMindRecordBlobEnds = MakeIndexTag("mrbe");  // and behind its last blob
inline constexpr IndexTag kMindRecordFields =
    MakeIndexTag("mrbf");  // names of the blob fields in order
inline constexpr IndexTag kMindRecordLayout = MakeIndexTag("mrla");  // a MindRecordBlob

// Gives name and value of every entry of a row; `use` has to pass what belongs to the value.
template <typename Use>
absl::Status ForEachMindRecordEntry(absl::string_view row, const Use& use) {
  MsgpackReader reader(row);
  FW_ASSIGN_OR_RETURN(const MsgpackValue map, reader.Next());
  if (map.kind != MsgpackValue::Kind::kMap)
    return absl::DataLossError(absl::StrCat("is ", map.name(), ", not a map"));
  for (uint32_t i = 0; i < map.items; ++i) {
    FW_ASSIGN_OR_RETURN(const MsgpackValue name, reader.Next());
    if (name.kind != MsgpackValue::Kind::kText)
      return absl::DataLossError(absl::StrCat("has ", name.name(), " for a column's name"));
    FW_ASSIGN_OR_RETURN(const MsgpackValue value, reader.Next());
    FW_RETURN_IF_ERROR(use(name.bytes, value, &reader));
  }
  if (reader.rest().empty()) return absl::OkStatus();
  return absl::DataLossError("goes on behind its map");
}

// The rows that an index tells of. DataLoss where its columns do not fit.
absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenMindRecordRows(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted);

}  // namespace feedwater::server
