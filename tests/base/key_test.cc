// Keys: different parts never look alike, and their names are SHA-256's.
#include "server/base/key.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/escaping.h"

namespace feedwater::server {
namespace {

std::string Hex(const std::array<uint8_t, 32>& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

TEST(Sha256, GivesThePublishedValues) {
  EXPECT_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthAroundABlockIsAnother) {
  std::set<std::string> seen;
  for (size_t length = 0; length <= 200; ++length)
    EXPECT_TRUE(seen.insert(Hex(Sha256(std::string(length, '\0')))).second) << length;
}

TEST(Key, ItsNamesAreTold) {
  const std::string name = Key("kind").Add("part", 1).Name();
  EXPECT_TRUE(IsKeyName(name));
  for (const std::string& other : {std::string(), name.substr(1), name + "0", "g" + name.substr(1),
                                   "A" + name.substr(1), "." + name.substr(1)})
    EXPECT_FALSE(IsKeyName(other)) << other;
}

TEST(Key, PartsCannotPretendToBeOthers) {
  std::set<std::string> texts, names;
  const auto expect_new = [&](const Key& key) {
    EXPECT_TRUE(texts.insert(key.text()).second) << key.text();
    EXPECT_TRUE(names.insert(key.Name()).second) << key.text();
    EXPECT_EQ(key.Name().size(), 32u);
  };
  using Words = std::vector<std::string>;
  expect_new(Key("a"));
  expect_new(Key("b"));
  expect_new(Key("a").Add("x", Words{"0", "1"}));
  expect_new(Key("a").Add("x", Words{"0\n1"}));
  expect_new(Key("a").Add("x", Words{"0\n- 1:1"}));
  expect_new(Key("a").Add("x", Words{"0", "1\n"}));
  expect_new(Key("a").Add("x", Words{}));
  expect_new(Key("a").Add("x", Words{""}));
  expect_new(Key("a").Add("x", "").Add("y", "z"));
  expect_new(Key("a").Add("x", "\ny 1:z"));
  expect_new(Key("a").Add("x", "1"));
  expect_new(Key("a").Add("x", int64_t{1}));
  expect_new(Key("a").Add("x", std::string(1, '\0')));
}

}  // namespace
}  // namespace feedwater::server
