// What of a record is written into a shard, for the commands that write shards and for those that
// compare them with their source.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/tensor.h"
#include "server/source/dataset.h"

namespace feedwater::cli {

// Belongs to one thread.
class ValueMaker {
 public:
  virtual ~ValueMaker() = default;

  // The fields to write of the record that was parsed: valid until the next call, and as long as
  // `parsed` and its bytes. An error is the record's, unless it tells of the machine.
  virtual absl::StatusOr<const server::Record*> Make(int64_t record,
                                                     const server::Record& parsed) = 0;

  // Of a field of the last record that Make was given, whose bytes are what Make gave: whether
  // `written` is also the same in itself, where it was transformed without loss. DataLoss if not.
  virtual absl::Status CheckSame(size_t /*field*/, const server::Tensor& /*written*/) {
    return absl::OkStatus();
  }
};

}  // namespace feedwater::cli
