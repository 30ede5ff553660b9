// What a job runs: a pipeline file's spec with its dataset, its plan and its caches. The catalogue
// makes it (service/catalogue.h); it does not change any more, and jobs share it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/base/memory_budget.h"
#include "server/cache/record_cache.h"
#include "server/cache/seek_index_store.h"
#include "server/graph/op_caller.h"
#include "server/graph/pipeline_spec.h"
#include "server/graph/plan.h"
#include "server/pipeline/kept_fields.h"
#include "server/source/dataset.h"

namespace feedwater::server {

// A pipeline with its dataset opened and its graph planned. Shared by all jobs that run it.
struct LoadedPipeline {
  PipelineSpec spec;
  std::shared_ptr<const MemoryReservation> text;    // for one that a client sent; else null
  std::shared_ptr<const MemoryReservation> tables;  // that the plan's ops keep; may be null
  std::shared_ptr<const void> file;  // what it was read from, another one after a change, or null
  uint64_t reload = 0;  // of the configuration: the one whose roots it was opened below
  std::string warning;  // for those who open it; "" is none
  // Of a pipeline with a source or ops of a user's own: that user's alone. `is_current`: whether
  // the same ops are served; may be null, as `op_caller` is without such ops.
  std::optional<uint32_t> only_user;
  std::vector<std::string> own_code;  // names of the sources and ops of users' own
  // What the programs say that those are: the source's, then "op NAME: ..." each. No digest has it.
  std::string own_identity;
  std::function<bool()> is_current;
  std::shared_ptr<OpCaller> op_caller;
  std::shared_ptr<const Dataset> dataset;
  int64_t class_names_bytes = 0;  // in an answer
  std::shared_ptr<const Plan> plan;
  // What is kept of the records, and why so (cache_choice.h). Null: nothing.
  std::shared_ptr<RecordCache> cache;
  CacheKind cache_kind = CacheKind::kNone;
  std::string cache_reason;
  KeptForm kept;
  // Of the JPEGs that are decoded from their files. Null: none are kept.
  std::shared_ptr<SeekIndexStore> seek_indexes;

  // Settles in which form records are kept. REQUIRES: dataset and plan.
  void Keep(CacheKind kind) {
    cache_kind = kind;
    if (kind != CacheKind::kNone) kept = KeptFormOf(kind, *dataset, *plan);
  }

  // What a sample takes while it is made, the cache's part included.
  const SampleMemory& sample_memory() const {
    return plan->memory(cache_kind == CacheKind::kDecoded ? SampleWay::kKeeping
                                                          : SampleWay::kWhole);
  }
};

}  // namespace feedwater::server
