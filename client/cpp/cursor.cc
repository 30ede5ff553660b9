#include "client/cpp/cursor.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"

namespace feedwater {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxUint64 = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr size_t kMaxDigestBytes = 64;

// nlohmann keeps keys sorted and writes no blanks: dump() is the canonical form.
uint32_t CanonicalCrc(Json object) {
  object.erase("crc32c");
  const std::string canonical = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  return wire::Crc32c(0, canonical.data(), canonical.size());
}

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the state's field '", field, "' ", what,
                                                 "; load what State() gave, unchanged"));
}

absl::Status ReadNumber(const Json& object, const char* field, uint64_t high, uint64_t* value) {
  const auto found = object.find(field);
  if (found == object.end()) return Bad(field, "is missing");
  if (!found->is_number_unsigned()) return Bad(field, "is no whole number");
  *value = found->get<uint64_t>();
  return *value > high ? Bad(field, absl::StrCat("is out of range: ", *value)) : absl::OkStatus();
}

absl::Status ReadNumber(const Json& object, const char* field, int64_t* value) {
  uint64_t number = 0;
  absl::Status status = ReadNumber(object, field, kMaxInt64, &number);
  *value = static_cast<int64_t>(number);
  return status;
}

absl::Status ReadDigest(const Json& object, const char* field, std::string* value) {
  const auto found = object.find(field);
  if (found == object.end()) return Bad(field, "is missing");
  if (!found->is_string()) return Bad(field, "is no text");
  *value = found->get<std::string>();
  return value->size() > kMaxDigestBytes ? Bad(field, "is no digest") : absl::OkStatus();
}

absl::Status ReadSkips(const Json& object, Cursor* cursor) {
  const auto found = object.find("skip");
  if (found == object.end()) return Bad("skip", "is missing");
  if (!found->is_array() || found->empty() || found->size() > Cursor::kMaxSkips)
    return Bad("skip", absl::StrCat("is no list of 1 to ", Cursor::kMaxSkips, " ranges"));
  for (const Json& range : *found) {
    const bool whole = range.is_array() && range.size() == 3 &&
                       std::all_of(range.begin(), range.end(),
                                   [](const Json& n) { return n.is_number_unsigned(); });
    if (!whole || range[2].get<uint64_t>() > kMaxInt64 ||
        range[1].get<uint64_t>() >= range[2].get<uint64_t>()) {
      return Bad("skip", "holds something that is no [epoch, first, end]");
    }
    if (absl::Status added = cursor->Skip(
            {range[0].get<uint64_t>(), range[1].get<int64_t>(), range[2].get<int64_t>()});
        !added.ok())
      return added;
  }
  return absl::OkStatus();
}

absl::StatusOr<Cursor> Read(const Json& object) {
  const auto version = object.find("version");
  if (version == object.end())
    return absl::InvalidArgumentError(
        "this is no state of a feedwater stream: it has no 'version'");
  if (!version->is_number_unsigned() || (*version != 1 && *version != 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state's field 'version' is ",
                     version->dump(-1, ' ', true, Json::error_handler_t::replace),
                     ", this client reads versions 1 and 2"));
  }
  constexpr std::array kFields = {"version",     "dataset",  "pipeline",   "seed",
                                  "epoch",       "position", "world_size", "batch_size",
                                  "substituted", "crc32c",   "skip"};
  for (const auto& [name, value] : object.items()) {
    const bool known = std::find(kFields.begin(), kFields.end(), name) != kFields.end();
    if (!known || (name == "skip" && *version == 1))
      return Bad(name, absl::StrCat("is unknown in version ", version->get<int>()));
  }
  Cursor cursor;
  uint64_t crc = 0;
  absl::Status status = ReadDigest(object, "dataset", &cursor.dataset);
  if (status.ok()) status = ReadDigest(object, "pipeline", &cursor.pipeline);
  if (status.ok()) status = ReadNumber(object, "seed", kMaxUint64, &cursor.seed);
  if (status.ok()) status = ReadNumber(object, "epoch", kMaxUint64, &cursor.at.epoch);
  if (status.ok()) status = ReadNumber(object, "position", &cursor.at.position);
  if (status.ok()) status = ReadNumber(object, "world_size", &cursor.world_size);
  if (status.ok()) status = ReadNumber(object, "batch_size", &cursor.batch_size);
  if (status.ok()) status = ReadNumber(object, "substituted", &cursor.substituted);
  if (status.ok() && *version == 2) status = ReadSkips(object, &cursor);
  if (status.ok())
    status = ReadNumber(object, "crc32c", std::numeric_limits<uint32_t>::max(), &crc);
  if (!status.ok()) return status;
  if (crc != CanonicalCrc(object)) {
    return absl::InvalidArgumentError(
        "the state is damaged or was edited: its crc32c does not fit its content");
  }
  return cursor;
}

}  // namespace

absl::StatusOr<Cursor> Cursor::FromJson(absl::string_view state) {
  if (state.size() > 4 * kMaxBytes) {  // some writers add blanks
    return absl::InvalidArgumentError(
        absl::StrCat("the state has ", state.size(), " bytes: a state has at most ", kMaxBytes));
  }
  try {
    const Json object =
        Json::parse(state.begin(), state.end(), nullptr, /*allow_exceptions=*/false);
    if (!object.is_object())
      return absl::InvalidArgumentError("the state is no JSON object: load what State() gave");
    return Read(object);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("the state cannot be read: ", error.what()));
  }
}

absl::Status Cursor::CheckSameSource(const Cursor& ours) const {
  const auto differs = [this](absl::string_view name, const auto& theirs, const auto& own,
                              absl::string_view cure) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state belongs to another ", name, ": the state has ", theirs, ", this stream ", own,
        "; continuing would give other samples. Cure: open the stream ", cure,
        "; or do not load it, and begin an epoch anew with SetEpoch(", at.epoch, ")"));
  };
  if (dataset != ours.dataset)
    return differs("dataset", dataset, ours.dataset, "on the files that it was saved with");
  if (pipeline != ours.pipeline)
    return differs("pipeline", pipeline, ours.pipeline, "with the pipeline that it was saved with");
  if (seed != ours.seed)
    return differs("seed", seed, ours.seed, absl::StrCat("with StreamOptions::seed = ", seed));
  return absl::OkStatus();
}

absl::Status Cursor::CheckSameWorld(int64_t ours) const {
  if (world_size == ours) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the state was saved with world size ", world_size, ", and this stream's is ", ours,
      ": of an iterable dataset each rank makes its own samples, so it goes on with the same world "
      "size alone"));
}

std::string Cursor::ToJson() const {
  Json json = {{"version", skips.empty() ? 1 : 2},
               {"dataset", dataset},
               {"pipeline", pipeline},
               {"seed", seed},
               {"epoch", at.epoch},
               {"position", at.position},
               {"world_size", world_size},
               {"batch_size", batch_size},
               {"substituted", substituted}};
  if (!skips.empty()) {
    json["skip"] = Json::array();
    for (const SkippedRange& range : skips)
      json["skip"].push_back(Json::array({range.epoch, range.first, range.end}));
  }
  json["crc32c"] = CanonicalCrc(json);
  return json.dump();
}

absl::Status Cursor::Skip(SkippedRange range) {
  std::vector<SkippedRange> kept;
  for (const SkippedRange& other : skips) {
    if (other.epoch == range.epoch && other.first <= range.end && range.first <= other.end) {
      range.first = std::min(range.first, other.first);
      range.end = std::max(range.end, other.end);
    } else {
      kept.push_back(other);
    }
  }
  if (kept.size() == kMaxSkips) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMaxSkips,
                     " ranges can be left out at a time: a range that has been passed makes room"));
  }
  const auto after = std::find_if(kept.begin(), kept.end(), [&](const SkippedRange& other) {
    return std::tie(other.epoch, other.first) > std::tie(range.epoch, range.first);
  });
  kept.insert(after, range);
  skips = std::move(kept);
  return absl::OkStatus();
}

void Cursor::ForgetPassed() {
  const auto passed = [this](const SkippedRange& range) {
    return std::tie(range.epoch, range.end) <= std::tie(at.epoch, at.position);
  };
  skips.erase(std::remove_if(skips.begin(), skips.end(), passed), skips.end());
}

EpochPosition Cursor::AfterSkips(EpochPosition place) const {
  const int64_t global_batch = batch_size * world_size;
  for (const SkippedRange& range : skips) {  // sorted: leaving one can only lead into a later one
    if (range.epoch == place.epoch && place.position < range.end &&
        range.first - place.position < global_batch)
      place.position = range.end;
  }
  return place;
}

}  // namespace feedwater
