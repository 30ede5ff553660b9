// MindRecord files for tests, written as mindspore/ccsrc/minddata/mindrecord/io/shard_writer.cc
// does: groups of rows, each with a page of blobs; two groups share a page of rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace feedwater::server {

template <typename T>
std::string MindRecordNumber(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string MindRecordBigEndian(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = bytes; i-- > 0;) text += static_cast<char>(value >> (8 * i));
  return text;
}
// The blob of a row with several blob fields.
inline std::string MindRecordBlobText(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) text += MindRecordBigEndian(field.size(), 8) + field;
  return text;
}
// Integers as version 3.0 packs them.
inline std::string MindRecordPacked(const std::vector<int64_t>& numbers) {
  std::string widths((numbers.size() + 3) / 4, '\0'), values;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t number = numbers[i];
    const int width = number == static_cast<int8_t>(number)    ? 0
                      : number == static_cast<int16_t>(number) ? 1
                      : number == static_cast<int32_t>(number) ? 2
                                                               : 3;
    widths[i / 4] = static_cast<char>(widths[i / 4] | width << (6 - i % 4 * 2));
    values += MindRecordNumber(number).substr(0, size_t{1} << width);
  }
  return MindRecordBigEndian(numbers.size(), 4) + widths + values;
}
inline std::string MindRecordMap(const nlohmann::json& map) {
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(map);
  return {bytes.begin(), bytes.end()};
}

struct MindRecordText {
  nlohmann::json schema;  // {"label": {"type": "int64"}, ...}
  std::vector<std::string> blob_fields;
  std::vector<std::pair<std::string, std::string>> rows;  // a map, and the blob
  std::string version = "3.0";
  std::vector<std::string> names = {"a.mindrecord"};
  uint64_t shard = 0, header_bytes = 2048, page_bytes = 256;
  size_t group = 2;                             // rows
  std::function<void(nlohmann::json&)> change;  // of the header, before it is written

  std::string text() const {
    std::string pages;
    nlohmann::json page_list;
    uint64_t page_id = 0;
    // Where the page begins; another begins where it ended.
    const auto add = [&](const std::string& bytes, nlohmann::json told) {
      pages.resize(page_id * page_bytes);
      pages += bytes;
      told["page_id"] = page_id++;
      told["page_size"] = bytes.size();
      told["shard_id"] = shard;
      page_list.push_back(std::move(told));
    };
    const size_t groups = (rows.size() + group - 1) / group;
    std::string raws;
    nlohmann::json offsets;
    for (size_t g = 0; g < groups; ++g) {
      const size_t end = std::min(rows.size(), (g + 1) * group);
      std::string blobs;
      offsets.push_back({{"id", g}, {"offset", raws.size()}});
      for (size_t i = g * group; i < end; ++i) {
        raws += MindRecordNumber(uint64_t{rows[i].first.size()}) + rows[i].first;
        blobs += MindRecordNumber(uint64_t{rows[i].second.size()}) + rows[i].second;
      }
      add(blobs, {{"page_type", "BLOB_DATA"},
                  {"page_type_id", g},
                  {"start_row_id", g * group},
                  {"end_row_id", end},
                  {"row_group_ids", {{{"id", 0}, {"offset", 0}}}}});
      if (g % 2 == 0 && g + 1 < groups) continue;
      add(raws, {{"page_type", "RAW_DATA"},
                 {"page_type_id", 0},
                 {"start_row_id", 0},
                 {"end_row_id", 0},
                 {"row_group_ids", offsets}});
      raws.clear();
      offsets.clear();
    }
    nlohmann::json header = {
        {"header_size", header_bytes},
        {"index_fields", nlohmann::json::array()},
        {"page", page_list},
        {"page_size", page_bytes},
        {"schema", {{{"blob_fields", blob_fields}, {"desc", "a test's"}, {"schema", schema}}}},
        {"shard_addresses", names},
        {"shard_id", shard},
        {"statistics", nullptr},
        {"version", version}};
    if (change) change(header);
    std::string text = header.dump();
    text = MindRecordNumber(uint64_t{text.size()}) + text;
    text.resize(std::max<size_t>(header_bytes, text.size()));
    return text + pages;
  }
};

}  // namespace feedwater::server
