#include "server/batch/slot_layout.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {

namespace {

// False when the sum overflows.
bool RoundUp(int64_t* value, int64_t multiple) {
  return !__builtin_add_overflow(*value, (multiple - *value % multiple) % multiple, value);
}

std::string Describe(const SlotLayout::Output& output) {
  return absl::StrCat(
      "'", output.field.name, "' ", output.field.spec.ToString(), ", ", output.sample_bytes,
      " bytes a sample from byte ", output.offset,
      output.field.is_ragged() ? absl::StrCat(", offsets from byte ", output.offsets_offset) : "");
}

}  // namespace

absl::StatusOr<SlotLayout> SlotLayout::Create(const std::vector<FieldSpec>& outputs,
                                              int64_t batch_size, int64_t max_slot_bytes) {
  if (batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", batch_size, "; a batch has at least one sample"));
  }
  if (outputs.empty()) {
    return absl::InvalidArgumentError("a batch without outputs; name at least one under `outputs`");
  }
  SlotLayout layout;
  layout.batch_size = batch_size;
  int64_t end = 0;
  std::string sum;  // "602112 (image) + 8 (label)", for the message
  bool has_ragged = false;
  const auto add = [&end](int64_t bytes, int64_t count, int64_t* offset) {
    if (!RoundUp(&end, kOutputAlignment)) return false;
    *offset = end;
    return !__builtin_mul_overflow(bytes, count, &bytes) &&
           !__builtin_add_overflow(end, bytes, &end);
  };
  for (const FieldSpec& field : outputs) {
    absl::StatusOr<int64_t> sample_bytes = field.SampleBytes();
    if (!sample_bytes.ok()) {
      return Annotate(sample_bytes.status(), absl::StrCat("output '", field.name, "'"));
    }
    absl::StrAppend(&sum, sum.empty() ? "" : " + ", *sample_bytes, " (", field.name, ")");
    Output output{field, 0, *sample_bytes};
    const bool fits =
        add(*sample_bytes, batch_size, &output.offset) &&
        (!field.is_ragged() ||
         (batch_size < INT64_MAX && add(sizeof(int64_t), batch_size + 1, &output.offsets_offset)));
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", batch_size, " samples of ", sum,
                       " bytes is more than 8 EiB; make the batch smaller"));
    }
    has_ragged |= field.is_ragged();
    layout.outputs.push_back(std::move(output));
  }
  end = std::max<int64_t>(end, 1);  // a slot without bytes would be no memory at all
  if (!RoundUp(&end, sysconf(_SC_PAGESIZE)) || end > max_slot_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch_size, " samples of ", sum, " bytes takes ", FormatBytes(end),
        ", over the limit of ", FormatBytes(max_slot_bytes), "; make the batch smaller",
        has_ragged ? ", or max_rows of its ragged outputs" : ""));
  }
  layout.slot_bytes = end;
  return layout;
}

BatchMemory SlotLayout::MemoryOf(std::byte* slot) const {
  BatchMemory memory;
  memory.batch_size = batch_size;
  memory.outputs.reserve(outputs.size());
  memory.offsets.reserve(outputs.size());
  for (const Output& output : outputs) {
    memory.outputs.push_back(slot + output.offset);
    memory.offsets.push_back(output.field.is_ragged()
                                 ? reinterpret_cast<int64_t*>(slot + output.offsets_offset)
                                 : nullptr);
  }
  return memory;
}

std::string SlotLayout::DifferenceFrom(const SlotLayout& other) const {
  for (size_t i = 0; i < std::max(outputs.size(), other.outputs.size()); ++i) {
    const std::string here = i < outputs.size() ? Describe(outputs[i]) : "nothing";
    const std::string there = i < other.outputs.size() ? Describe(other.outputs[i]) : "nothing";
    if (here != there) return absl::StrCat("output ", i, ", ", here, " here and ", there, " there");
  }
  if (batch_size != other.batch_size || slot_bytes != other.slot_bytes) {
    return absl::StrCat("slots of ", slot_bytes, " bytes for ", batch_size, " samples here and ",
                        other.slot_bytes, " for ", other.batch_size, " there");
  }
  return "";
}

}  // namespace feedwater::server
