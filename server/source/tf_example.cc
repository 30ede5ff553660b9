#include "server/source/tf_example.h"

#include <cstring>

#include "server/source/wire_reader.h"

namespace feedwater::server {
namespace {

using Kind = TfFeature::Kind;

// Field numbers of feature.proto and example.proto.
constexpr uint32_t kContext = 1, kFeatureLists = 2;  // SequenceExample; Example has the first
constexpr uint32_t kMapEntry = 1, kKey = 1, kValue = 2;
constexpr uint32_t kFeature = 1;                                    // FeatureList
constexpr uint32_t kBytesList = 1, kFloatList = 2, kInt64List = 3;  // Feature
constexpr uint32_t kListValue = 1;
constexpr size_t kMostVarint = 10;

absl::Status Damaged() {
  return absl::DataLossError("is no tf.train.Example or SequenceExample, or a damaged one");
}

absl::Status ForEachEntry(absl::string_view map, bool is_list, UseFeature use) {
  WireReader entries(map);
  while (entries.Next()) {
    if (!entries.is_bytes(kMapEntry)) continue;
    WireReader entry(entries.bytes());
    absl::string_view key, value;
    while (entry.Next()) {
      if (entry.is_bytes(kKey)) key = entry.bytes();
      if (entry.is_bytes(kValue)) value = entry.bytes();
    }
    if (entry.damaged()) return Damaged();
    FW_RETURN_IF_ERROR(use(key, is_list, value));
  }
  return entries.damaged() ? Damaged() : absl::OkStatus();
}

// The number of varints; -1 when the last one does not end, or one is too long.
int64_t CountVarints(absl::string_view packed) {
  int64_t count = 0;
  size_t length = 0;
  for (const char byte : packed) {
    if (++length > kMostVarint) return -1;
    if ((static_cast<unsigned char>(byte) & 0x80) != 0) continue;
    ++count;
    length = 0;
  }
  return length == 0 ? count : -1;
}

// Adds a BytesList, FloatList or Int64List.
bool CountList(absl::string_view list, TfFeature* feature) {
  WireReader values(list);
  int64_t fields = 0;
  absl::string_view chunk;
  while (values.Next()) {
    if (values.number() != kListValue) continue;
    ++fields;
    const WireType type = values.type();
    if (feature->kind == Kind::kBytes) {
      if (type != WireType::kBytes) return false;
      feature->bytes = values.bytes();
      ++feature->values;
    } else if (feature->kind == Kind::kFloats) {
      if (type != WireType::kBytes && type != WireType::kFixed32) return false;
      if (values.bytes().size() % sizeof(float) != 0) return false;
      chunk = values.bytes();
      feature->values += static_cast<int64_t>(chunk.size() / sizeof(float));
    } else if (type == WireType::kVarint) {
      ++feature->values;
    } else {
      const int64_t count = type == WireType::kBytes ? CountVarints(values.bytes()) : -1;
      if (count < 0) return false;
      feature->values += count;
    }
  }
  if (fields == 1) feature->packed = chunk;  // of integers, which have to be decoded, nothing
  return !values.damaged();
}

Kind KindOf(uint32_t field) {
  return field == kBytesList ? Kind::kBytes : field == kFloatList ? Kind::kFloats : Kind::kIntegers;
}

bool IsList(const WireReader& reader) {
  return reader.type() == WireType::kBytes && reader.number() >= kBytesList &&
         reader.number() <= kInt64List;
}

absl::StatusOr<TfFeature> ReadOne(absl::string_view message) {
  TfFeature feature;
  WireReader lists(message);
  while (lists.Next()) {
    if (!IsList(lists)) continue;
    // One of three: what stands twice is written by nobody and would have to be merged.
    if (feature.kind != Kind::kNone) return Damaged();
    feature.kind = KindOf(lists.number());
    if (!CountList(lists.bytes(), &feature)) return Damaged();
  }
  if (lists.damaged()) return Damaged();
  feature.step_values = feature.values;
  return feature;
}

std::byte* CopyOne(absl::string_view message, std::byte* to) {
  WireReader lists(message);
  while (lists.Next()) {
    if (!IsList(lists) || lists.number() == kBytesList) continue;
    WireReader values(lists.bytes());
    while (values.Next()) {
      if (values.number() != kListValue) continue;
      if (lists.number() == kFloatList) {
        if (!values.bytes().empty()) std::memcpy(to, values.bytes().data(), values.bytes().size());
        to += values.bytes().size();
        continue;
      }
      uint64_t number = values.value();
      absl::string_view packed = values.type() == WireType::kVarint ? "" : values.bytes();
      if (values.type() != WireType::kVarint && !TakeVarint(&packed, &number)) continue;  // empty
      do {
        std::memcpy(to, &number, sizeof(number));
        to += sizeof(number);
      } while (TakeVarint(&packed, &number));
    }
  }
  return to;
}

}  // namespace

absl::Status ForEachFeature(absl::string_view record, UseFeature use) {
  WireReader parts(record);
  while (parts.Next()) {
    if (parts.is_bytes(kContext) || parts.is_bytes(kFeatureLists))
      FW_RETURN_IF_ERROR(ForEachEntry(parts.bytes(), parts.number() == kFeatureLists, use));
  }
  return parts.damaged() ? Damaged() : absl::OkStatus();
}

const char* TfKindName(Kind kind) {
  switch (kind) {
    case Kind::kBytes:
      return "bytes_list";
    case Kind::kFloats:
      return "float_list";
    case Kind::kIntegers:
      return "int64_list";
    case Kind::kNone:
      break;
  }
  return "feature without values";
}

absl::StatusOr<TfFeature> ReadTfFeature(bool is_list, absl::string_view message) {
  if (!is_list) return ReadOne(message);
  TfFeature all;
  all.steps = 0;
  WireReader steps(message);
  while (steps.Next()) {
    if (!steps.is_bytes(kFeature)) continue;
    FW_ASSIGN_OR_RETURN(const TfFeature step, ReadOne(steps.bytes()));
    if (all.kind == Kind::kNone) all.kind = step.kind;
    if (step.kind != Kind::kNone && step.kind != all.kind) {
      return absl::DataLossError("has steps of different types");
    }
    if (all.steps == 0) all.step_values = step.values;
    if (all.step_values != step.values) all.step_values = -1;
    all.values += step.values;
    all.packed = step.packed;
    all.bytes = step.bytes;
    ++all.steps;
  }
  if (steps.damaged()) return Damaged();
  if (all.steps != 1) all.packed = {};
  return all;
}

void CopyTfNumbers(bool is_list, absl::string_view message, std::byte* to) {
  if (!is_list) {
    CopyOne(message, to);
    return;
  }
  WireReader steps(message);
  while (steps.Next()) {
    if (steps.is_bytes(kFeature)) to = CopyOne(steps.bytes(), to);
  }
}

}  // namespace feedwater::server
