// Where each output of a batch stands in a slot. Outputs follow each other in the pipeline's order,
// each aligned to kOutputAlignment; a slot is rounded up to a page. A ragged output is followed by
// its offsets, batch_size + 1 int64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/graph/plan.h"
#include "server/source/dataset.h"

namespace feedwater::server {

inline constexpr int64_t kOutputAlignment = 64;

struct SlotLayout {
  struct Output {
    FieldSpec field;              // spec without the batch axis
    int64_t offset = 0;           // from the slot's start
    int64_t sample_bytes = 0;     // of a ragged output: at most
    int64_t offsets_offset = -1;  // of a ragged output: where its offsets begin; -1: it has none
  };
  std::vector<Output> outputs;
  int64_t batch_size = 0;
  int64_t slot_bytes = 0;

  // InvalidArgument when a size overflows or the slot passes `max_slot_bytes`; the message has the
  // product.
  static absl::StatusOr<SlotLayout> Create(const std::vector<FieldSpec>& outputs,
                                           int64_t batch_size, int64_t max_slot_bytes);
  // Where the outputs of a batch in this slot lie; without staging.
  BatchMemory MemoryOf(std::byte* slot) const;
  // The first thing in which `other` differs, for a message: "output 'image', uint8[8,8,3] HWC at
  // byte 0 here and uint8[9,9,3] HWC at byte 0 there". "": nothing.
  std::string DifferenceFrom(const SlotLayout& other) const;
};

}  // namespace feedwater::server
