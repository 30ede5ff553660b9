// The features of a tf.train.Example or SequenceExample, as tensorflow/core/example/example.proto
// and feature.proto describe them. Both begin alike: an Example's features are a SequenceExample's
// context, so one walk reads either. Views into the record; any bytes are safe. Pure functions.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

// Calls `use` with each feature's name and message, a Feature or the FeatureList of a sequence, in
// the order of the record. DataLoss where the record is no such message.
using UseFeature = absl::FunctionRef<absl::Status(absl::string_view name, bool is_list,
                                                  absl::string_view message)>;
absl::Status ForEachFeature(absl::string_view record, UseFeature use);

// What a feature holds.
struct TfFeature {
  enum class Kind : uint8_t { kNone, kBytes, kFloats, kIntegers };
  Kind kind = Kind::kNone;
  int64_t values = 0;       // of all steps
  int64_t steps = 1;        // Features in a FeatureList; 1 of a feature of its own
  int64_t step_values = 0;  // of each step; -1: they differ
  absl::string_view bytes;  // kBytes: the last value
  // The values of a record's numbers where they lie together (packed, one step); else empty.
  absl::string_view packed;
};
const char* TfKindName(TfFeature::Kind kind);  // "int64_list"

// Counts, so that room can be made. DataLoss where the message is damaged.
absl::StatusOr<TfFeature> ReadTfFeature(bool is_list, absl::string_view message);
// Writes all values of a message that ReadTfFeature has counted: float or int64_t, at any address.
void CopyTfNumbers(bool is_list, absl::string_view message, std::byte* to);

}  // namespace feedwater::server
