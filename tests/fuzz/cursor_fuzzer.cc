// Any text as a saved cursor, also with a right CRC: what the daemon takes says the same when it is
// written again.
// LIBS: feedwater_service
#include <nlohmann/json.hpp>

#include "proto/shm/crc32c.h"
#include "server/service/cursor.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using server::Cursor;
using Json = nlohmann::json;

// The text with the CRC that its other keys call for; as it is where it is no object.
std::string WithRightCrc(const std::string& text) {
  Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return text;
  object.erase("crc32c");
  const std::string canonical = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  object["crc32c"] = wire::Crc32c(0, canonical.data(), canonical.size());
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Check(const std::string& text) {
  const auto cursor = server::ParseCursor(text);
  if (!cursor.ok()) return;
  Require(text.size() <= server::kMaxCursorBytes, "a cursor has at most 1 KiB");
  const std::string canonical = server::FormatCursor(*cursor);
  const auto again = server::ParseCursor(canonical);
  Require(again.ok(), "a cursor that was written can be read");
  Require(server::FormatCursor(*again) == canonical, "a cursor says the same when written again");

  server::CursorTarget target{"pipeline", cursor->dataset, cursor->pipeline, cursor->seed};
  Require(server::CheckCursor(*cursor, target).ok(), "what agrees can be continued");
  Require(cursor->position >= 0, "no position is before the beginning");
  target.dataset_digest[0] ^= 1;
  Require(!server::CheckCursor(*cursor, target).ok(), "another dataset is refused");
}

void Run(Input input) {
  const std::string text = AsText(input);
  Check(text);
  Check(WithRightCrc(text));
}

std::vector<std::string> Seeds() {
  Cursor cursor;
  cursor.dataset = std::string(32, 'a');
  cursor.pipeline = std::string(32, '7');
  std::vector<std::string> seeds = {server::FormatCursor(cursor)};
  cursor.seed = cursor.epoch = ~uint64_t{0};
  cursor.position = 1000;
  cursor.world_size = 8;
  seeds.push_back(server::FormatCursor(cursor));
  seeds.push_back(std::string(200, '[') + "1");
  seeds.push_back("{\"a\":{\"b\":[1e400,-0.0,\"\\ud800\"]}}");
  return seeds;
}

std::vector<std::string> Words() {
  return {"\"version\":",
          "\"dataset\":",
          "\"pipeline\":",
          "\"seed\":",
          "\"epoch\":",
          "\"position\":",
          "\"world_size\":",
          "\"batch_size\":",
          "\"substituted\":",
          "\"crc32c\":",
          "18446744073709551615",
          "9223372036854775807",
          "-1",
          "1.5",
          "null"};
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, Words, 2048};
  return target;
}

}  // namespace feedwater::fuzz
