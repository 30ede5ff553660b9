#include "server/graph/varying_rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// Bytes of one row. REQUIRES: a value with varying rows.
int64_t RowBytes(const TensorSpec& spec) { return spec.WithRows(1).ByteSize().value_or(0); }

}  // namespace

absl::Status CheckRows(const Plan::Impl& plan, int value, const TensorSpec& spec) {
  const Value& of = plan.flow.values[value];
  if (of.batch_value < 0 || !of.spec.HasVaryingRows()) return absl::OkStatus();
  const BatchValue& output = plan.flow.batch_values[of.batch_value];
  const int64_t rows = spec.shape[0], room = output.RowsAtMost();
  if (rows <= room) return absl::OkStatus();
  const char* const key = output.max_rows > 0 ? "max_rows" : "pad_to";
  return absl::InvalidArgumentError(absl::StrCat(
      "field '", output.name, "' has ", rows, " rows, more than its ", key, " of ", room,
      "; if the record is good: 'outputs: [..., {", output.name, ": {", key, ": ", rows, "}}]'"));
}

void FinishRows(const Plan::Impl& plan, int value, int64_t rows, int64_t k,
                const BatchMemory& memory) {
  const Value& of = plan.flow.values[value];
  if (of.length_value >= 0)
    std::memcpy(plan.batch_places[of.length_value].At(memory, k), &rows, sizeof(rows));
  if (of.batch_value < 0) return;
  const BatchValue& output = plan.flow.batch_values[of.batch_value];
  const BatchPlace& place = plan.batch_places[of.batch_value];
  if (output.max_rows > 0) {
    memory.offsets[static_cast<size_t>(place.output)][k + 1] = rows;
    return;
  }
  const size_t element = output.padding.size();
  std::byte* const end = place.At(memory, k) + place.sample_bytes;
  for (std::byte* at = place.At(memory, k) + rows * RowBytes(of.spec); at < end; at += element)
    std::memcpy(at, output.padding.data(), element);
}

absl::Status CopyRows(const Plan::Impl& plan, int value, const BatchMemory& from, int64_t from_k,
                      const BatchMemory& memory, int64_t k) {
  const Value& of = plan.flow.values[value];
  const auto copy = [&](int batch_value, int64_t bytes) {
    const BatchPlace& place = plan.batch_places[batch_value];
    std::memcpy(place.At(memory, k), place.At(from, from_k), static_cast<size_t>(bytes));
  };
  if (of.length_value >= 0) copy(of.length_value, plan.batch_places[of.length_value].sample_bytes);
  if (of.batch_value < 0) return absl::OkStatus();
  const BatchValue& output = plan.flow.batch_values[of.batch_value];
  const BatchPlace& place = plan.batch_places[of.batch_value];
  if (output.max_rows == 0) {
    copy(of.batch_value, place.sample_bytes);
    return absl::OkStatus();
  }
  const auto number = static_cast<size_t>(place.output);
  // Read once: whoever shares the memory may write it again.
  const int64_t rows = *const_cast<const volatile int64_t*>(&from.offsets[number][from_k + 1]);
  if (rows < 0 || rows > output.max_rows) {
    return absl::DataLossError(absl::StrCat("field '", output.name, "' was given ", rows,
                                            " rows, and there is room for ", output.max_rows));
  }
  copy(of.batch_value, rows * RowBytes(of.spec));
  memory.offsets[number][k + 1] = rows;
  return absl::OkStatus();
}

void PackRaggedOutputs(const Plan::Impl& plan, int64_t samples, const BatchMemory& memory) {
  for (int output : plan.flow.outputs) {
    const BatchValue& value = plan.flow.batch_values[output];
    if (value.max_rows == 0) continue;
    const BatchPlace& place = plan.batch_places[output];
    const int64_t row_bytes = RowBytes(value.spec);
    std::byte* const rows = place.Base(memory);
    int64_t* const offsets = memory.offsets[static_cast<size_t>(place.output)];
    offsets[0] = 0;
    for (int64_t k = 0; k < samples; ++k) {
      const int64_t bytes = offsets[k + 1] * row_bytes;
      std::byte* const to = rows + offsets[k] * row_bytes;
      if (bytes > 0 && to != place.At(memory, k))
        std::memmove(to, place.At(memory, k), static_cast<size_t>(bytes));
      offsets[k + 1] += offsets[k];
    }
    for (int64_t k = samples; k < memory.batch_size; ++k) offsets[k + 1] = offsets[samples];
  }
}

}  // namespace feedwater::server
