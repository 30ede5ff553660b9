// Every byte of a client's message is checked before anything looks at it: exact sizes, known
// types, zero where zero is due. The last test throws random and nearly right packets at the
// parser.
#include "server/transport/client_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

template <typename M>
std::vector<std::byte> Packet(const M& message) {
  std::vector<std::byte> packet(sizeof(M));
  std::memcpy(packet.data(), &message, sizeof(M));
  return packet;
}

wire::Hello Hello() {
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = wire::kMinor;
  return hello;
}

wire::Release Release() {
  wire::Release release{};
  release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
  release.slot = 3;
  release.generation = 7;
  return release;
}

wire::Seek Seek() {
  wire::Seek seek{};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  seek.serial = 2;
  seek.position = 100;
  return seek;
}

// The name of the violation, "" for none.
std::string Verdict(const std::vector<std::byte>& packet, bool truncated = false) {
  const ClientMessage message = ParseClientMessage(packet, truncated);
  const auto* violation = std::get_if<Violation>(&message);
  return violation == nullptr ? "" : violation->counter;
}

TEST(ClientMessage, RightOnesComeThroughUnchanged) {
  const ClientMessage hello = ParseClientMessage(Packet(Hello()), false);
  const ClientMessage release = ParseClientMessage(Packet(Release()), false);
  const ClientMessage seek = ParseClientMessage(Packet(Seek()), false);
  ASSERT_TRUE(std::holds_alternative<wire::Hello>(hello));
  ASSERT_TRUE(std::holds_alternative<wire::Release>(release));
  ASSERT_TRUE(std::holds_alternative<wire::Seek>(seek));
  EXPECT_EQ(std::get<wire::Release>(release).generation, 7u);
  EXPECT_EQ(std::get<wire::Seek>(seek).position, 100);
}

TEST(ClientMessage, EverySizeButTheRightOneIsRefused) {
  for (const auto& right : {Packet(Hello()), Packet(Release()), Packet(Seek())}) {
    for (size_t size = 0; size <= wire::kMaxMessage; ++size) {
      if (size == right.size()) continue;
      std::vector<std::byte> wrong = right;
      wrong.resize(size);
      EXPECT_EQ(Verdict(wrong), "protocol_bad_size")
          << size << " bytes, header says " << right.size();
      if (size < sizeof(wire::Header)) continue;
      const auto said = static_cast<uint16_t>(size);
      std::memcpy(wrong.data() + offsetof(wire::Header, size), &said, sizeof(said));
      EXPECT_EQ(Verdict(wrong), "protocol_bad_size") << size << " bytes, header agrees";
    }
    EXPECT_EQ(Verdict(right, /*truncated=*/true), "protocol_bad_size");
  }
}

TEST(ClientMessage, TypesThatNoClientSendsAreRefused) {
  for (int type = 0; type < 70'000; type += type < 20 ? 1 : 997) {
    wire::Release message = Release();
    message.header.type = static_cast<uint16_t>(type);
    const auto t = static_cast<wire::Type>(message.header.type);
    if (t == wire::Type::kHello || t == wire::Type::kRelease || t == wire::Type::kSeek) continue;
    EXPECT_EQ(Verdict(Packet(message)), "protocol_bad_type") << type;
  }
}

TEST(ClientMessage, ReservedFieldsAreZero) {
  wire::Release release = Release();
  release.reserved = 1;
  EXPECT_EQ(Verdict(Packet(release)), "protocol_bad_reserved");
  release = Release();
  release.header.reserved = 1;
  EXPECT_EQ(Verdict(Packet(release)), "protocol_bad_reserved");
  wire::Seek seek = Seek();
  seek.reserved = 1u << 31;
  EXPECT_EQ(Verdict(Packet(seek)), "protocol_bad_reserved");
  wire::Hello hello = Hello();
  hello.reserved = 5;
  EXPECT_EQ(Verdict(Packet(hello)), "protocol_bad_reserved");
}

TEST(ClientMessage, ASeekBeforeTheBeginningIsRefused) {
  wire::Seek seek = Seek();
  seek.position = -1;
  EXPECT_EQ(Verdict(Packet(seek)), "protocol_bad_seek");
}

TEST(ClientMessage, AnotherMajorVersionIsToldBothVersionsWhateverItsSize) {
  wire::Hello hello = Hello();
  hello.major = 2;
  for (size_t size : {sizeof(wire::Hello), size_t{16}, size_t{100}}) {
    hello.header.size = static_cast<uint16_t>(size);
    std::vector<std::byte> packet = Packet(hello);
    packet.resize(size);
    const ClientMessage message = ParseClientMessage(packet, false);
    const auto* violation = std::get_if<Violation>(&message);
    ASSERT_NE(violation, nullptr);
    EXPECT_STREQ(violation->counter, "protocol_version");
    EXPECT_EQ(violation->reason.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(violation->reason.message().find("client speaks data protocol 2.2, this daemon 1.2"),
              absl::string_view::npos)
        << violation->reason;
  }
}

TEST(ClientMessage, ANewerMinorVersionMayHaveAddedFieldsToHello) {
  wire::Hello hello = Hello();
  hello.minor = wire::kMinor + 1;
  EXPECT_EQ(Verdict(Packet(hello)), "");
  hello.header.size = 48;
  std::vector<std::byte> packet = Packet(hello);
  packet.resize(48, std::byte{0xff});
  EXPECT_EQ(Verdict(packet), "");
}

TEST(ClientMessage, AStrangersGreetingIsRefused) {
  wire::Hello hello = Hello();
  hello.magic ^= 1;
  EXPECT_EQ(Verdict(Packet(hello)), "protocol_bad_magic");
}

TEST(ClientMessage, RandomPacketsAreRefusedOrExactlyRight) {
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "FEEDWATER_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::vector<std::byte>> right = {Packet(Hello()), Packet(Release()),
                                                     Packet(Seek())};
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> packet = right[random() % right.size()];
    for (int flips = static_cast<int>(random() % 4); flips > 0; --flips) {
      packet[random() % packet.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) packet.resize(random() % (wire::kMaxMessage + 1));
    const ClientMessage message = ParseClientMessage(packet, false);
    if (const auto* release = std::get_if<wire::Release>(&message)) {
      ASSERT_EQ(std::memcmp(release, packet.data(), packet.size()), 0);
      ASSERT_EQ(release->reserved | release->header.reserved, 0u);
    }
    if (const auto* seek = std::get_if<wire::Seek>(&message)) {
      ASSERT_GE(seek->position, 0);
      ASSERT_EQ(packet.size(), sizeof(wire::Seek));
    }
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
      ASSERT_EQ(hello->major, wire::kMajor);
    }
  }
}

}  // namespace
}  // namespace feedwater::server
