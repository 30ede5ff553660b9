#include "client/cpp/layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace feedwater {
namespace {

absl::Status Another(absl::string_view what, absl::string_view now, absl::string_view before) {
  return absl::FailedPreconditionError(
      absl::StrCat("the daemon came back with another ", what, ": ", now, " instead of ", before,
                   ". Open a new stream with StreamOptions::state = State(), which is refused if "
                   "the data are others"));
}

std::string ShapeOf(const v1::Field& field) {
  return absl::StrCat("[", absl::StrJoin(field.shape(), ", "), "]");
}

std::string TypeOf(const v1::Field& field) {
  return std::string(DTypeName(static_cast<DType>(field.dtype())));
}

std::string NameAt(const v1::OpenStreamResponse& answer, int output) {
  return output < answer.fields_size() ? absl::StrCat("'", answer.fields(output).name(), "'")
                                       : "None";
}

std::string ClassAt(const v1::OpenStreamResponse& answer, int number) {
  return number < answer.classes_size() ? absl::StrCat("'", answer.classes(number), "'") : "None";
}

bool IsInSlot(uint64_t offset, int64_t bytes, const v1::OpenStreamResponse& opened) {
  return bytes >= 0 && offset <= opened.slot_bytes() &&
         static_cast<uint64_t>(bytes) <= opened.slot_bytes() - offset;
}

absl::Status CheckSameField(const v1::Field& now, const v1::Field& before) {
  auto differs = [&](absl::string_view part, absl::string_view new_value,
                     absl::string_view old_value) {
    return Another(absl::StrCat(part, " of output '", now.name(), "'"), new_value, old_value);
  };
  if (now.dtype() != before.dtype()) return differs("dtype", TypeOf(now), TypeOf(before));
  if (ShapeOf(now) != ShapeOf(before)) return differs("shape", ShapeOf(now), ShapeOf(before));
  if (now.layout() != before.layout()) return differs("layout", now.layout(), before.layout());
  if (now.offset() != before.offset())
    return differs("offset", absl::StrCat(now.offset()), absl::StrCat(before.offset()));
  if (now.max_rows() != before.max_rows())
    return differs("max_rows", absl::StrCat(now.max_rows()), absl::StrCat(before.max_rows()));
  if (now.offsets_offset() != before.offsets_offset()) {
    return differs("offsets_offset", absl::StrCat(now.offsets_offset()),
                   absl::StrCat(before.offsets_offset()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Field>> FieldsOf(const v1::OpenStreamResponse& opened) {
  int64_t global_batch = 0;
  if (opened.batch_size() < 1 || opened.world_size() < 1 ||
      __builtin_mul_overflow(opened.batch_size(), opened.world_size(), &global_batch))
    return absl::InternalError("the daemon describes batches of an impossible size");
  std::vector<Field> fields;
  for (const v1::Field& field : opened.fields()) {
    const int dtype = field.dtype();
    if (dtype < 0 || dtype > UINT8_MAX || DTypeSize(static_cast<DType>(dtype)) == 0) {
      return absl::UnimplementedError(absl::StrCat(
          "output '", field.name(), "' has elements of type ", dtype,
          ", which this client does not know: install the daemon's version of the client"));
    }
    fields.push_back({field.name(),
                      static_cast<DType>(field.dtype()),
                      {field.shape().begin(), field.shape().end()},
                      field.layout(),
                      field.max_rows()});
    int64_t bytes = 0;
    bool fits = !__builtin_mul_overflow(
        opened.batch_size(), static_cast<int64_t>(DTypeSize(fields.back().dtype)), &bytes);
    std::vector<int64_t> sides = fields.back().shape;
    const bool is_ragged = field.max_rows() != 0;
    if (is_ragged) {
      fits = fits && field.max_rows() > 0 && !sides.empty() && sides[0] == -1 &&
             opened.batch_size() < INT64_MAX / static_cast<int64_t>(sizeof(int64_t)) - 1 &&
             field.offsets_offset() % alignof(int64_t) == 0 &&
             IsInSlot(field.offsets_offset(),
                      (opened.batch_size() + 1) * static_cast<int64_t>(sizeof(int64_t)), opened);
      if (!sides.empty()) sides[0] = field.max_rows();
    }
    for (int64_t side : sides)
      fits = fits && side >= 0 && !__builtin_mul_overflow(bytes, side, &bytes);
    if (!fits || !IsInSlot(field.offset(), bytes, opened)) {
      return absl::InternalError(
          absl::StrCat("field '", field.name(), "' does not fit into a slot"));
    }
  }
  return fields;
}

absl::StatusOr<Tensor> TensorOf(const Field& field, const v1::Field& place, uint32_t samples,
                                const std::byte* slot, std::vector<int64_t>* offsets) {
  Tensor tensor;
  tensor.dtype = field.dtype;
  tensor.shape = field.shape;
  if (field.max_rows > 0) {
    // A copy, since the daemon can still write to what is checked here.
    offsets->resize(samples + size_t{1});
    std::memcpy(offsets->data(), slot + place.offsets_offset(), offsets->size() * sizeof(int64_t));
    tensor.offsets = *offsets;
    const bool is_sorted = tensor.offsets[0] == 0 && absl::c_is_sorted(tensor.offsets);
    if (!is_sorted || tensor.offsets[samples] > samples * field.max_rows) {
      return absl::InternalError(
          absl::StrCat("the daemon lent a batch with impossible offsets of '", field.name, "'"));
    }
    tensor.shape[0] = tensor.offsets[samples];
  } else {
    tensor.shape.insert(tensor.shape.begin(), samples);
  }
  size_t bytes = DTypeSize(tensor.dtype);
  for (int64_t side : tensor.shape) bytes *= static_cast<size_t>(side);
  tensor.bytes = {slot + place.offset(), bytes};
  return tensor;
}

absl::Status CheckSameLayout(const v1::OpenStreamResponse& now,
                             const v1::OpenStreamResponse& before) {
  const struct {
    absl::string_view name;
    std::string now, before;
  } facts[] = {
      {"pipeline", now.pipeline(), before.pipeline()},
      {"dataset_digest", now.dataset_digest(), before.dataset_digest()},
      {"pipeline_digest", now.pipeline_digest(), before.pipeline_digest()},
      {"seed", absl::StrCat(now.seed()), absl::StrCat(before.seed())},
      {"batch_size", absl::StrCat(now.batch_size()), absl::StrCat(before.batch_size())},
      {"world_size", absl::StrCat(now.world_size()), absl::StrCat(before.world_size())},
      {"records", absl::StrCat(now.records()), absl::StrCat(before.records())},
      {"steps_per_epoch", absl::StrCat(now.steps_per_epoch()),
       absl::StrCat(before.steps_per_epoch())},
      {"samples_per_epoch", absl::StrCat(now.samples_per_epoch()),
       absl::StrCat(before.samples_per_epoch())},
  };
  for (const auto& fact : facts) {
    if (fact.now != fact.before) return Another(fact.name, fact.now, fact.before);
  }
  // A daemon of before it does not tell it.
  if (!now.own_identity().empty() && !before.own_identity().empty() &&
      now.own_identity() != before.own_identity())
    return Another("own_identity", now.own_identity(), before.own_identity());
  for (int i = 0; i < std::max(now.classes_size(), before.classes_size()); ++i) {
    if (ClassAt(now, i) != ClassAt(before, i))
      return Another(absl::StrCat("class ", i), ClassAt(now, i), ClassAt(before, i));
  }
  for (int i = 0; i < std::max(now.fields_size(), before.fields_size()); ++i) {
    if (NameAt(now, i) != NameAt(before, i))
      return Another(absl::StrCat("output ", i), NameAt(now, i), NameAt(before, i));
    if (absl::Status same = CheckSameField(now.fields(i), before.fields(i)); !same.ok())
      return same;
  }
  // Last: where it differs, what made it so is of more use.
  if (now.slot_bytes() != before.slot_bytes())
    return Another("slot_bytes", absl::StrCat(now.slot_bytes()), absl::StrCat(before.slot_bytes()));
  return absl::OkStatus();
}

}  // namespace feedwater
