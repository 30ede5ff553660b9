#include "server/service/cursor.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "feedwater/version.h"
#include "proto/shm/crc32c.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

using Json = nlohmann::json;

constexpr size_t kDigestDigits = 32;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the cursor ", what, "; load the state that state_dict() gave, unchanged"));
}

// nlohmann::json sorts its keys and writes no spaces: dump() is the canonical form.
uint32_t CanonicalCrc(Json object) {
  object.erase("crc32c");
  std::string canonical = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  return wire::Crc32c(0, canonical.data(), canonical.size());
}

absl::StatusOr<uint64_t> Number(const Json& object, const char* key, uint64_t high) {
  auto found = object.find(key);
  if (found == object.end()) return Malformed(absl::StrCat("lacks '", key, "'"));
  if (!found->is_number_unsigned())
    return Malformed(absl::StrCat("has no whole number for '", key, "'"));
  uint64_t value = found->get<uint64_t>();
  if (value > high)
    return Malformed(
        absl::StrCat("has ", value, " for '", key, "', at most ", high, " makes sense"));
  return value;
}

absl::StatusOr<std::string> Digest(const Json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end()) return Malformed(absl::StrCat("lacks '", key, "'"));
  if (!found->is_string()) return Malformed(absl::StrCat("has no text for '", key, "'"));
  std::string digest = found->get<std::string>();
  bool hex = digest.size() == kDigestDigits &&
             digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex)
    return Malformed(absl::StrCat("has no ", kDigestDigits, " hexadecimal digits for '", key, "'"));
  return digest;
}

absl::StatusOr<Cursor> Read(const Json& object) {
  constexpr uint64_t kMaxUint64 = std::numeric_limits<uint64_t>::max();
  constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
  FW_ASSIGN_OR_RETURN(uint64_t version, Number(object, "version", kMaxUint64));
  if (version != kCursorVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the cursor has format version ", version,
                                                   "; feedwaterd ", kFeedwaterVersion,
                                                   " reads version ", kCursorVersion));
  }
  FW_ASSIGN_OR_RETURN(uint64_t crc, Number(object, "crc32c", std::numeric_limits<uint32_t>::max()));
  if (crc != CanonicalCrc(object))
    return Malformed("is damaged: its CRC32C does not fit its content");
  Cursor cursor;
  FW_ASSIGN_OR_RETURN(cursor.dataset, Digest(object, "dataset"));
  FW_ASSIGN_OR_RETURN(cursor.pipeline, Digest(object, "pipeline"));
  FW_ASSIGN_OR_RETURN(cursor.seed, Number(object, "seed", kMaxUint64));
  FW_ASSIGN_OR_RETURN(cursor.epoch, Number(object, "epoch", kMaxUint64));
  FW_ASSIGN_OR_RETURN(cursor.position, Number(object, "position", kMaxInt64));
  FW_ASSIGN_OR_RETURN(cursor.world_size, Number(object, "world_size", kMaxInt64));
  FW_ASSIGN_OR_RETURN(cursor.batch_size, Number(object, "batch_size", kMaxInt64));
  FW_ASSIGN_OR_RETURN(cursor.substituted, Number(object, "substituted", kMaxUint64));
  return cursor;
}

}  // namespace

absl::StatusOr<Cursor> ParseCursor(absl::string_view text) {
  if (text.size() > kMaxCursorBytes) {
    return Malformed(absl::StrCat("has ", text.size(), " bytes, more than ", kMaxCursorBytes));
  }
  try {
    Json object = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return Malformed("is not a JSON object");
    return Read(object);
  } catch (const std::exception& error) {
    return Malformed(absl::StrCat("cannot be read: ", error.what()));
  }
}

std::string FormatCursor(const Cursor& cursor) {
  Json object = {{"version", kCursorVersion},
                 {"dataset", cursor.dataset},
                 {"pipeline", cursor.pipeline},
                 {"seed", cursor.seed},
                 {"epoch", cursor.epoch},
                 {"position", cursor.position},
                 {"world_size", cursor.world_size},
                 {"batch_size", cursor.batch_size},
                 {"substituted", cursor.substituted}};
  object["crc32c"] = CanonicalCrc(object);
  return object.dump();
}

absl::Status CheckCursor(const Cursor& cursor, const CursorTarget& target) {
  if (cursor.dataset != target.dataset_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the cursor's dataset has the digest ", cursor.dataset, " and the dataset of '",
        target.pipeline_name, "' has ", target.dataset_digest,
        ": the files have changed since, or it is another dataset; restore them, or start anew"));
  }
  if (cursor.pipeline != target.pipeline_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the cursor's pipeline has the digest ", cursor.pipeline, " and '", target.pipeline_name,
        "' has ", target.pipeline_digest,
        ": its file has changed since, or it is another pipeline; restore it, or start anew"));
  }
  if (cursor.seed != target.seed) {
    return absl::FailedPreconditionError(absl::StrCat("the cursor's seed is ", cursor.seed,
                                                      " and this stream's seed is ", target.seed,
                                                      "; give the same seed, or start anew"));
  }
  if (target.world_size != 0 && static_cast<int64_t>(cursor.world_size) != target.world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("the cursor's world size is ", cursor.world_size, " and this stream's is ",
                     target.world_size,
                     ": in an iterable dataset each rank makes its own records, so it goes "
                     "on with the same world size alone; take that, or start anew"));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
