// The bytes of every message against the files in tests/transport/golden, which stand for all
// programs that have ever been built against this version of the protocol: each field holds a value
// of its own, so a field that moves, grows or shrinks shows. proto/shm/README.md describes the same
// bytes in words.
//
// Those of version 1.0 stay: what is newer has a file of its own.
//
// A difference means that old clients no longer understand new daemons. Only a message that is new
// in a minor version may add a file: run this test with FEEDWATER_WRITE_GOLDEN=1 and commit what it
// wrote.
#include "proto/shm/wire.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "proto/shm/crc32c.h"
#include "server/transport/daemon_message.h"

namespace feedwater::server {
namespace {

template <typename M>
void ExpectGolden(const std::string& name, const M& message) {
  const std::string path =
      std::string(FEEDWATER_SOURCE_DIR) + "/tests/transport/golden/" + name + ".bin";
  const std::string bytes(reinterpret_cast<const char*>(&message), sizeof(message));
  if (std::getenv("FEEDWATER_WRITE_GOLDEN") != nullptr)
    std::ofstream(path, std::ios::binary) << bytes;
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  const std::string golden((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(golden.size(), bytes.size());
  for (size_t i = 0; i < std::min(golden.size(), bytes.size()); ++i) {
    ASSERT_EQ(golden[i], bytes[i]) << name << " differs at byte " << i;
  }
}

template <typename M>
M Start(wire::Type type) {
  M message{};
  message.header = wire::MakeHeader<M>(type);
  return message;
}

TEST(Wire, HelloHasItsGoldenBytes) {
  auto hello = Start<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = 0;
  hello.features = 0x11121314;
  ExpectGolden("hello", hello);
}

TEST(Wire, WelcomeHasItsGoldenBytes) {
  auto welcome = Start<wire::Welcome>(wire::Type::kWelcome);
  welcome.magic = wire::kMagic;
  welcome.major = wire::kMajor;
  welcome.minor = 0;
  welcome.features = 0x21222324;
  welcome.daemon_pid = 0x25262728;
  for (int i = 0; i < 16; ++i) welcome.ticket[i] = static_cast<uint8_t>(0xa0 + i);
  ExpectGolden("welcome", welcome);
}

TEST(Wire, ArenaHasItsGoldenBytes) { ExpectGolden("arena", MakeArena(0x0000'0304'0506'1000, 7)); }

TEST(Wire, ReadyHasItsGoldenBytes) {
  BatchMeta meta;
  meta.serial = 0x31323334;
  meta.epoch = 0x4142434445464748;
  meta.step = 0x5152535455565758;
  meta.next_position = 0x6162636465666768;
  meta.samples = 0x71727374;
  meta.real_samples = 0x75767778;
  meta.substituted = 0x797a7b7c;
  meta.last_in_epoch = true;
  wire::Ready ready = MakeReady(0x2a, meta);
  ready.generation = 0x8182838485868788;
  ready.flags |= wire::kReadyHasCrc;
  ready.crc32c = 0x91929394;
  ready.published_ns = 0x2122232425262728;
  ExpectGolden("ready", ready);
}

TEST(Wire, FailedHasItsGoldenBytes) {
  BatchMeta meta;
  meta.serial = 0x31323334;
  meta.epoch = 0x4142434445464748;
  meta.step = 0x5152535455565758;
  meta.next_position = 0x6162636465666768;
  wire::FailedWithReason message =
      MakeFailed(meta, {absl::DataLossError("premature end"), 0x0102030405060708,
                        "train/n01440764/x.jpg", wire::FailReason::kTooManyBad});
  ExpectGolden("failed_with_reason", message);
  message.failed.header = wire::MakeHeader<wire::Failed>(wire::Type::kFailed);
  ExpectGolden("failed", message.failed);  // of 1.0
}

TEST(Wire, ClosingHasItsGoldenBytes) {
  ExpectGolden("closing", MakeClosing(absl::UnavailableError("the daemon is stopping")));
}

TEST(Wire, ReleaseHasItsGoldenBytes) {
  auto release = Start<wire::Release>(wire::Type::kRelease);
  release.slot = 0x2a;
  release.generation = 0x8182838485868788;
  ExpectGolden("release", release);
}

TEST(Wire, SeekHasItsGoldenBytes) {
  auto seek = Start<wire::Seek>(wire::Type::kSeek);
  seek.serial = 0x31323334;
  seek.epoch = 0x4142434445464748;
  seek.position = 0x6162636465666768;
  ExpectGolden("seek", seek);
}

// Of providers, since 1.2.
TEST(Wire, RegionHasItsGoldenBytes) {
  auto region = Start<wire::Region>(wire::Type::kRegion);
  region.region_bytes = 0x1112131415161718;
  region.window_bytes = 0x2122232425262728;
  region.windows = 0x31323334;
  region.entries = 0x41424344;
  ExpectGolden("region", region);
}

TEST(Wire, AskAndAnswerHaveTheirGoldenBytes) {
  auto ask = Start<wire::Ask>(wire::Type::kAsk);
  ask.window = 0x11121314;
  ask.entries = 0x21222324;
  ask.serial = 0x3132333435363738;
  ExpectGolden("ask", ask);
  auto answer = Start<wire::Answer>(wire::Type::kAnswer);
  answer.window = 0x51525354;
  answer.entries = 0x61626364;
  answer.serial = 0x7172737475767778;
  ExpectGolden("answer", answer);
}

TEST(Wire, WhatStandsInAWindowHasItsGoldenBytes) {
  const wire::Entry entry{.record = 0x0102030405060708,
                          .seed = {0x1112131415161718, 0x2122232425262728},
                          .input_offset = 0x3132333435363738,
                          .input_bytes = 0x4142434445464748,
                          .offset = 0x5152535455565758,
                          .bytes = 0x6162636465666768,
                          .code = 0x71727374,
                          .reserved = 0x81828384};
  ExpectGolden("entry", entry);
  const wire::TensorHead head{.dtype = 0x01,
                              .axes = 0x02,
                              .reserved = 0x1112,
                              .reserved2 = 0x21222324,
                              .offset = 0x3132333435363738,
                              .shape = {0x4142434445464748, 0x5152535455565758, 0x6162636465666768,
                                        0x7172737475767778, 2, 3}};
  ExpectGolden("tensor_head", head);
}

TEST(Wire, EveryGoldenFileBelongsToAMessage) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FEEDWATER_SOURCE_DIR) +
                                                               "/tests/transport/golden")) {
    files += entry.path().extension() == ".bin";
  }
  EXPECT_EQ(files, 14);
}

TEST(Wire, Crc32cIsTheOneOfRfc3720) {
  EXPECT_EQ(wire::Crc32c(0, "123456789", 9), 0xe3069283u);
  const std::string zeros(32, '\0'), ones(32, '\xff');
  EXPECT_EQ(wire::Crc32c(0, zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(wire::Crc32c(0, ones.data(), 32), 0x62a8ab43u);
  EXPECT_EQ(wire::Crc32c(wire::Crc32c(0, "12345", 5), "6789", 4), 0xe3069283u);
  EXPECT_EQ(wire::Crc32c(0, nullptr, 0), 0u);
}

TEST(Wire, ALongTracebackIsCutAtALine) {
  std::string text = "ValueError: no\n";
  while (text.size() < 2000) text += "  File \"own.py\", line 7, in make\n";
  const auto told = [](const std::string& reason) {
    return std::string(
        MakeFailed({}, {absl::DataLossError(reason), 1, "x", wire::FailReason::kBadRecord})
            .failed.message);
  };
  const std::string cut = told(text);
  ASSERT_GT(cut.size(), 400u);
  const std::string end = "in make\n[...]";
  EXPECT_EQ(cut.substr(cut.size() - end.size()), end);
  EXPECT_EQ(cut.substr(0, cut.size() - 6), text.substr(0, cut.size() - 6));
  EXPECT_EQ(told(std::string(2000, 'x')), std::string(511, 'x')) << "it has no lines";
  EXPECT_EQ(told("one\ntwo"), "one\ntwo");
}

}  // namespace
}  // namespace feedwater::server
