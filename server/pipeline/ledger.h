// The ledger: which records made, or will make, a batch, and when a record is used. Nothing is
// written down for it: the order is a pure function, so it can be asked about any epoch, of a job
// that runs or of one that ran long ago. Which records are bad is not part of the order, the report
// of bad samples knows that; but given those, what stands in for them follows from the order, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/graph/pipeline_spec.h"
#include "server/sampler/order.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct LedgerQuery {
  uint64_t epoch = 0;
  // A position at which a step of the epoch begins: 0, or where a cursor of another global batch
  // size went on. Steps count from the epoch's first position either way.
  int64_t start = 0;
  // One of them: the global batch of a step, or the places of a record.
  std::optional<int64_t> step, record;
  std::optional<int64_t> rank;         // of a step: its part alone
  std::map<int64_t, std::string> bad;  // records that are known to be, and why
  BadSamplePolicy on_bad_sample = BadSamplePolicy::kFail;
};

struct LedgerEntry {
  Use use;
  int64_t position = 0, record = 0;
  std::string path;  // of the first extent, as Dataset::PathText
  int64_t offset = 0, bytes = 0;
  int64_t label = -1;       // -1: the index does not know it
  int64_t dataset_id = -1;  // of a mix: its source
  bool is_bad = false;
  std::string bad_reason;
  int64_t stood_in = -1;  // the record at its place; -1: none
};

struct Ledger {
  int64_t steps = 0;                 // of the epoch
  std::vector<LedgerEntry> entries;  // by rank and place, of a record by step
};

inline constexpr int64_t kMaxLedgerPlaces = 1 << 14;  // of one answer
inline constexpr size_t kMaxLedgerPathBytes = 512;    // of a longer path the end is given

// InvalidArgument for a step, rank or record that does not exist, and for more than
// kMaxLedgerPlaces.
absl::StatusOr<Ledger> ReadLedger(const Dataset& dataset,
                                  const std::shared_ptr<const OrderConfig>& config,
                                  const LedgerQuery& query);

// A record by its number, or by its file: the path below the root, or the end of it that begins
// with a name. A number costs nothing, a path one pass over the index. NotFound when there is none;
// InvalidArgument when several records fit.
// `cancelled`, which may be null, is asked now and then: Cancelled when it says so.
absl::StatusOr<int64_t> FindRecord(const Dataset& dataset, absl::string_view text,
                                   const std::function<bool()>& cancelled = nullptr);

}  // namespace feedwater::server
