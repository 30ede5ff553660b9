// Who makes samples: the worker's own thread (InProcessMaker), or a process of its own that can
// touch nothing (IsolatedMaker). Both write the same bytes. A worker has one for each job it works
// on; it belongs to that thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/codec/image.h"
#include "server/codec/seek_indexes.h"
#include "server/graph/plan.h"

namespace feedwater::server {

// What samples have cost beside the calling thread's time, and how their images were decoded.
struct MakingCost {
  int64_t cpu_ns = 0;
  int64_t held_ns = 0;  // the thread was kept waiting, and nobody had the CPU for it
  DecodeCounts decoded;
};

class SampleMaker {
 public:
  virtual ~SampleMaker() = default;

  // The next samples may take so much memory (SampleNeed), until the next call.
  virtual void Allow(int64_t) {}

  // As Plan::Run and Plan::RunFromPrefix. ResourceExhausted and Unavailable tell of the machine,
  // everything else of the record.
  virtual absl::Status Run(const SampleInput& input, int64_t k, const BatchMemory& memory) = 0;
  virtual absl::Status RunFromPrefix(const SampleInput& input, int64_t k,
                                     const BatchMemory& memory) = 0;
  // The same, and shows `keep` what a cache may keep of the record, unless a field of that would be
  // larger than `max_field_bytes` or cannot be made: what cannot be kept may be a good sample all
  // the same. The fields live until `keep` returns.
  virtual absl::Status RunKeeping(const SampleInput& input, int64_t k, const BatchMemory& memory,
                                  int64_t max_field_bytes,
                                  absl::FunctionRef<void(const Record&)> keep) = 0;
  // The image as a coefficient document (codec/image.h); empty: it stays as it is. An error tells
  // of the machine.
  virtual absl::Status Pack(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                            std::vector<std::byte>* document) = 0;
  // Puts the whole seek indexes of the record's JPEGs where those of samples go, whatever the graph
  // looks at. What has none (MakeSeekIndex) is passed over. An error tells of the machine.
  virtual absl::Status MakeSeekIndexes(const Record& record) = 0;
  // Since the last call.
  virtual MakingCost TakeCost() = 0;
};

}  // namespace feedwater::server
