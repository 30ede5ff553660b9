// What is kept of a pipeline's records: what its `cache:` asks for, or what pays, within what the
// daemon has.
#pragma once

#include <cstdint>
#include <string>

#include "server/graph/plan.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct CacheChoice {
  CacheKind kind = CacheKind::kNone;  // never kAuto
  std::string reason;                 // a sentence for people
};

// `memory_bytes`, `disk_bytes`: what the daemon may keep. Never fails: what cannot be kept is not,
// and the reason says so.
CacheChoice ChooseCache(const PipelineSpec& spec, const Dataset& dataset, const Plan& plan,
                        int64_t memory_bytes, int64_t disk_bytes);

// Whether a field of the dataset is image files.
bool HasImages(const Dataset& dataset);

absl::string_view CacheKindName(CacheKind kind);  // as in a pipeline file

}  // namespace feedwater::server
