// What a cache keeps of a record, as bytes: fields, one after the other.
//
//   32 bytes digest of the form, 4 bytes number of fields, then for each field 4 bytes number of
//   axes and 8 bytes for each axis, padded to 64; then the fields, each at a multiple of 64.
//   Little-endian
//
// Types and layouts are the form's and not written: the digest covers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/cache/block.h"
#include "server/graph/plan.h"

namespace feedwater::server {

inline constexpr int64_t kMaxKeptFieldBytes = kMaxBlockBytes - kBlockUnit;

// In which form: the dataset's own fields (bytes), the same with JPEGs as coefficients, or the
// fields that the graph's prefix without randomness makes of them (decoded).
struct KeptForm {
  // Under which caches know it, versions included: caches of one form hold the same for a record,
  // whichever pipeline has filled them.
  std::string name;
  std::string digest;
  std::vector<FieldSpec> fields;
  std::vector<bool> as_coefficients;  // by field; empty: none
};
// REQUIRES: not kAuto or kNone.
KeptForm KeptFormOf(CacheKind kind, const Dataset& dataset, const Plan& plan);

// Makes `payload` what is kept of these fields. False when they are too large to be kept.
bool PackFields(const KeptForm& form, const Record& record, std::vector<std::byte>* payload);
// Where the fields are in every payload of a form all of whose shapes are fixed.
struct FixedPayload {
  std::vector<std::byte> head;  // with which it begins
  std::vector<size_t> at;       // by field
  size_t bytes = 0;

  bool Is(absl::Span<const std::byte> payload) const {
    return payload.size() == bytes && std::memcmp(payload.data(), head.data(), head.size()) == 0;
  }
};
// Nothing where shapes differ from record to record, or fields are too large to be kept.
std::optional<FixedPayload> FixedPayloadOf(const KeptForm& form);
// The fields of a payload, as views into it. DataLoss when it is not one of this form.
absl::Status UnpackFields(const KeptForm& form, absl::Span<const std::byte> payload,
                          Record* record);

}  // namespace feedwater::server
