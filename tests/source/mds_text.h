// MosaicML Streaming's shards and index.json for tests, written as streaming/base/format/mds says.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace feedwater::server {

struct MdsColumnText {
  std::string name, encoding;
  int size = 0;  // 0: differs
};

template <typename T>
std::string MdsNumberText(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline nlohmann::json MdsColumnsJson(const std::vector<MdsColumnText>& columns) {
  nlohmann::json json = {{"column_names", nlohmann::json::array()},
                         {"column_encodings", nlohmann::json::array()},
                         {"column_sizes", nlohmann::json::array()}};
  for (const MdsColumnText& column : columns) {
    json["column_names"].push_back(column.name);
    json["column_encodings"].push_back(column.encoding);
    json["column_sizes"].push_back(column.size == 0 ? nlohmann::json()
                                                    : nlohmann::json(column.size));
  }
  return json;
}

inline std::string MdsSampleText(const std::vector<MdsColumnText>& columns,
                                 const std::vector<std::string>& values) {
  std::string sizes, data;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].size == 0) sizes += MdsNumberText(static_cast<uint32_t>(values[i].size()));
    data += values[i];
  }
  return sizes + data;
}

inline std::string MdsShardText(const std::vector<MdsColumnText>& columns,
                                const std::vector<std::string>& samples) {
  const std::string config = MdsColumnsJson(columns).dump();
  auto at = static_cast<uint32_t>(4 * (samples.size() + 2) + config.size());
  std::string head = MdsNumberText(static_cast<uint32_t>(samples.size())) + MdsNumberText(at);
  std::string data;
  for (const std::string& sample : samples) {
    at += static_cast<uint32_t>(sample.size());
    head += MdsNumberText(at);
    data += sample;
  }
  return head + config + data;
}

// The description of one shard in index.json.
inline nlohmann::json MdsShardJson(const std::vector<MdsColumnText>& columns,
                                   const std::string& name, size_t bytes, size_t samples) {
  nlohmann::json json = MdsColumnsJson(columns);
  json["compression"] = nullptr;
  json["format"] = "mds";
  json["hashes"] = nlohmann::json::array();
  json["raw_data"] = {{"basename", name}, {"bytes", bytes}, {"hashes", nlohmann::json::object()}};
  json["samples"] = samples;
  json["size_limit"] = 67108864;
  json["version"] = 2;
  json["zip_data"] = nullptr;
  return json;
}
inline std::string MdsIndexText(const std::vector<nlohmann::json>& shards) {
  return nlohmann::json({{"version", 2}, {"shards", shards}}).dump();
}

}  // namespace feedwater::server
