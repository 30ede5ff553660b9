// MessagePack against nlohmann's writer, and bytes that are none.
#include "server/source/msgpack_reader.h"

#include <cmath>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using Kind = MsgpackValue::Kind;

std::string Packed(const json& value) {
  const std::vector<uint8_t> bytes = json::to_msgpack(value);
  return {bytes.begin(), bytes.end()};
}

json Binary(size_t bytes, int subtype = -1) {
  std::vector<uint8_t> data(bytes, 'b');
  return subtype < 0 ? json::binary(data) : json::binary(data, static_cast<uint64_t>(subtype));
}

// Reads a value again, by recursion, as the reader itself does not.
json Read(MsgpackReader* reader) {
  const auto value = reader->Next();
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return nullptr;
  switch (value->kind) {
    case Kind::kNil:
      return nullptr;
    case Kind::kBool:
      return value->integer != 0;
    case Kind::kInteger:
      return value->integer;
    case Kind::kUnsigned:
      return "too large";
    case Kind::kFloat:
      return value->number;
    case Kind::kText:
      return std::string(value->bytes);
    case Kind::kBytes:
      return value->bytes.size();
    case Kind::kList: {
      json list = json::array();
      for (uint32_t i = 0; i < value->items; ++i) list.push_back(Read(reader));
      return list;
    }
    case Kind::kMap: {
      json map = json::object();
      for (uint32_t i = 0; i < value->items; ++i) {
        const std::string key = Read(reader).get<std::string>();
        map[key] = Read(reader);
      }
      return map;
    }
  }
  return nullptr;
}

json Again(const json& value) {
  const std::string bytes = Packed(value);
  MsgpackReader reader(bytes);
  const json again = Read(&reader);
  EXPECT_TRUE(reader.rest().empty()) << value;
  MsgpackReader skipping(bytes);
  const auto head = skipping.Next();
  EXPECT_TRUE(head.ok() && skipping.Skip(*head).ok());
  EXPECT_TRUE(skipping.rest().empty()) << value;
  return again;
}

TEST(MsgpackReader, WhatAWriterWritesIsReadAgain) {
  std::vector<json> values = {nullptr,
                              true,
                              false,
                              "",
                              "text",
                              std::string(31, 'a'),
                              std::string(32, 'a'),
                              std::string(256, 'a'),
                              std::string(70'000, 'a'),
                              0.5,
                              -1e300,
                              json::array(),
                              json::object(),
                              json(std::vector<int>(15, 1)),
                              json(std::vector<int>(16, 1)),
                              json(std::vector<int>(70'000, 1))};
  for (int bits = 0; bits < 63; ++bits) {
    for (const int64_t more : {-1, 0, 1}) {
      values.push_back((int64_t{1} << bits) + more);
      values.push_back(-(int64_t{1} << bits) + more);
    }
  }
  values.push_back(INT64_MIN);
  values.push_back(INT64_MAX);
  json map;
  for (int i = 0; i < 70'000; ++i) map[std::to_string(i)] = {i, {{"in", {i, "deep"}}}};
  values.push_back(map);
  for (const json& value : values) EXPECT_EQ(Again(value), value);
  EXPECT_EQ(Again(UINT64_MAX), "too large");
  for (const size_t bytes : {0u, 1u, 2u, 3u, 4u, 8u, 16u, 17u, 255u, 256u, 70'000u}) {
    EXPECT_EQ(Again(Binary(bytes)), bytes);
    if (bytes > 0) {
      EXPECT_EQ(Again(Binary(bytes, 5)), bytes + 1) << "with the extension's type";
    }
  }
}

TEST(MsgpackReader, BytesThatEndEarlyAreADamageAtEveryByte) {
  const std::string bytes = Packed({{"a", 70'000},
                                    {"b", "text"},
                                    {"c", 0.1},
                                    {"d", {1, {{"e", nullptr}}}},
                                    {"f", Binary(9, 7)}});
  for (size_t keep = 0; keep < bytes.size(); ++keep) {
    MsgpackReader reader(absl::string_view(bytes).substr(0, keep));
    const auto head = reader.Next();
    EXPECT_TRUE(absl::IsDataLoss(head.ok() ? reader.Skip(*head) : head.status())) << keep;
  }
}

// A list of a list of a list ..., and lists that say they are large, cost nothing.
TEST(MsgpackReader, NestingCostsNoStackAndSizesNoMemory) {
  std::string deep(10'000'000, '\x91');
  for (const std::string& rest : {std::string(), std::string("\xc0")}) {
    MsgpackReader reader(deep += rest);
    EXPECT_EQ(reader.Skip(*reader.Next()).ok(), !rest.empty());
  }
  std::string wide;
  for (int i = 0; i < 1'000'000; ++i) wide += "\xdf\xff\xff\xff\xff";
  MsgpackReader reader(wide);
  EXPECT_TRUE(absl::IsDataLoss(reader.Skip(*reader.Next())));
  for (const char* text : {"\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff"})
    EXPECT_TRUE(absl::IsDataLoss(MsgpackReader(text).Next().status()));
  EXPECT_TRUE(absl::IsDataLoss(MsgpackReader("\xc1").Next().status()));
}

TEST(MsgpackReader, AnyBytesAreSafe) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    const std::string bytes = RandomBytes(1 + seed % 40, seed);
    MsgpackReader reader(bytes);
    while (!reader.rest().empty()) {
      const size_t before = reader.rest().size();
      const auto value = reader.Next();
      if (!value.ok() || !reader.Skip(*value).ok()) break;
      ASSERT_LT(reader.rest().size(), before) << seed;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
