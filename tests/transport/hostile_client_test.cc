// Clients that break the rules over a real socket. Each attack ends its own session, with its own
// counter and a reason that the client can read, and harms nothing else: a bystander's batches go
// on. Section "Counters" of server/transport/README.md lists what is counted.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <vector>

#include "server/base/clock.h"
#include "tests/testing/test_seed.h"
#include "tests/transport/data_server_fixture.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace feedwater::server {
namespace {

class HostileClient : public DataServerTest {
 protected:
  // Opens a session, has `attack` done in it with one batch lent, and expects the end of it, with
  // this counter, and of it alone.
  void ExpectClosed(const char* counter,
                    const std::function<void(Opened*, const wire::Ready&)>& attack) {
    SCOPED_TRACE(counter);
    auto bystander = Open();
    ASSERT_TRUE(bystander);
    ASSERT_TRUE(Works(&*bystander));
    auto attacker = Open();
    ASSERT_TRUE(attacker);
    attacker->pool->Publish(attacker->pool->Acquire(), {});
    const auto ready = attacker->trainer.Next();
    ASSERT_TRUE(ready);
    const uint64_t before = Count(counter);
    attack(&*attacker, *ready);
    const auto closing = attacker->trainer.Closing();
    ASSERT_TRUE(closing);
    EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kInvalidArgument))
        << closing->message;
    EXPECT_NE(std::string(closing->message), "");
    EXPECT_TRUE(CountBecomes(counter, before + 1));
    EXPECT_TRUE(Eventually([&] { return *attacker->closed == 1; }));
    EXPECT_EQ(attacker->pool->Acquire(), -1);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(Works(&*bystander));
    EXPECT_EQ(*bystander->closed, 0);
  }
};

TEST_F(HostileClient, AWrongReleaseEndsItsSessionOnly) {
  Start();
  ExpectClosed("protocol_bad_slot",
               [](Opened* s, const wire::Ready&) { s->trainer.Release(4, 1); });
  ExpectClosed("protocol_bad_slot",
               [](Opened* s, const wire::Ready&) { s->trainer.Release(0xffffffff, 1); });
  ExpectClosed("protocol_bad_generation", [](Opened* s, const wire::Ready& r) {
    s->trainer.Release(r.slot, r.generation + 1);
  });
  ExpectClosed("protocol_bad_generation", [](Opened* s, const wire::Ready& r) {
    s->trainer.Release(r.slot, r.generation - 1);  // what is true of a slot that was never lent
  });
  ExpectClosed("protocol_not_lent", [](Opened* s, const wire::Ready& r) {
    s->trainer.Release(r);
    s->trainer.Release(r);
  });
  ExpectClosed("protocol_not_lent", [](Opened* s, const wire::Ready&) {
    s->trainer.Release(s->pool->Acquire(), 0);  // being filled, for the first time
  });
}

TEST_F(HostileClient, AReleaseOfAGenerationThatIsOverEndsTheSession) {
  Start();
  ExpectClosed("protocol_bad_generation", [](Opened* s, const wire::Ready& old) {
    s->trainer.Release(old);
    ASSERT_TRUE(Eventually([&] { return s->pool->Acquire() == static_cast<int>(old.slot); }));
    s->pool->Publish(static_cast<int>(old.slot), {});
    const auto again = s->trainer.Next();
    ASSERT_TRUE(again && again->slot == old.slot);
    s->trainer.Release(old);
  });
}

TEST_F(HostileClient, AWrongSeekEndsItsSessionOnly) {
  Start();
  ExpectClosed("protocol_bad_serial",
               [](Opened* s, const wire::Ready&) { s->trainer.Seek(0, 0, 0); });
  ExpectClosed("protocol_bad_serial", [](Opened* s, const wire::Ready&) {
    s->trainer.Seek(5, 0, 0);
    s->trainer.Seek(5, 0, 0);
  });
  ExpectClosed("protocol_bad_seek",
               [](Opened* s, const wire::Ready&) { s->trainer.Seek(1, 0, -1); });
}

TEST_F(HostileClient, MessagesOfTheWrongFormEndTheirSessionOnly) {
  Start();
  wire::Release release{};
  release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
  ExpectClosed("protocol_bad_size",
               [&](Opened* s, const wire::Ready&) { s->trainer.SendBytes(&release, 23); });
  ExpectClosed("protocol_bad_size",
               [&](Opened* s, const wire::Ready&) { s->trainer.SendBytes(&release, 0); });
  ExpectClosed("protocol_bad_size",
               [&](Opened* s, const wire::Ready&) { s->trainer.SendBytes(&release, 3); });
  ExpectClosed("protocol_bad_size", [&](Opened* s, const wire::Ready&) {
    const std::vector<char> big(100'000);
    s->trainer.SendBytes(big.data(), big.size());
  });
  ExpectClosed("protocol_bad_type", [&](Opened* s, const wire::Ready&) {
    wire::Release wrong = release;
    wrong.header.type = static_cast<uint16_t>(wire::Type::kReady);
    s->trainer.Send(wrong);
  });
  ExpectClosed("protocol_bad_reserved", [&](Opened* s, const wire::Ready&) {
    wire::Release wrong = release;
    wrong.reserved = 1;
    s->trainer.Send(wrong);
  });
}

TEST_F(HostileClient, MessagesAtTheWrongTimeEndTheirSession) {
  Start();
  ExpectClosed("protocol_unexpected", [](Opened* s, const wire::Ready&) {
    wire::Hello hello{};
    hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
    hello.magic = wire::kMagic;
    hello.major = wire::kMajor;
    hello.minor = wire::kMinor;
    s->trainer.Send(hello);
  });
  for (const bool greeted : {false, true}) {
    for (const bool seek : {false, true}) {
      FakeTrainer trainer(path_);
      if (greeted) {
        ASSERT_TRUE(trainer.Hello());
      }
      const uint64_t before = Count("protocol_unexpected");
      ASSERT_TRUE(seek ? trainer.Seek(1, 0, 0) : trainer.Release(0, 0));
      const auto closing = trainer.Closing();
      ASSERT_TRUE(closing);
      EXPECT_TRUE(CountBecomes("protocol_unexpected", before + 1));
    }
  }
}

TEST_F(HostileClient, AnotherVersionIsToldBoth) {
  Start();
  FakeTrainer trainer(path_);
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = 2;
  ASSERT_TRUE(trainer.Send(hello));
  const auto closing = trainer.Closing();
  ASSERT_TRUE(closing);
  EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_NE(std::string(closing->message).find("client speaks data protocol 2.0, this daemon 1.2"),
            std::string::npos)
      << closing->message;
  EXPECT_TRUE(CountBecomes("protocol_version", 1));
}

TEST_F(HostileClient, ClosingCanBeReadThoughMuchWasSentBeforeIt) {
  Start();
  auto attacker = Open();
  ASSERT_TRUE(attacker);
  // All of these are in the daemon's queue when it ends the session over the first one.
  for (int i = 0; i < 100; ++i) attacker->trainer.Release(99, i);
  const auto closing = attacker->trainer.Closing();
  ASSERT_TRUE(closing);
  EXPECT_NE(std::string(closing->message).find("slot 99"), std::string::npos) << closing->message;
}

TEST_F(HostileClient, DescriptorsAreRefusedOrDroppedAndNoneLeaks) {
  Start();
  auto attacker = Open();
  ASSERT_TRUE(attacker);
  const int before = OpenDescriptors();
  const std::vector<int> many(250, 0);
  wire::Seek seek{};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  seek.serial = 1;
  if (attacker->trainer.SendBytes(&seek, sizeof(seek), many)) {
    EXPECT_TRUE(attacker->trainer.Closing());
    EXPECT_TRUE(CountBecomes("protocol_descriptors", 1));
    EXPECT_LE(OpenDescriptors(), before);
  } else {
    EXPECT_EQ(errno, EPERM);  // Linux 6.16: refused at the sender
    EXPECT_TRUE(Works(&*attacker));
    EXPECT_EQ(OpenDescriptors(), before);
  }
}

// The same on older kernels, which this test makes of a newer one by allowing descriptors on the
// daemon's sockets again.
TEST_F(HostileClient, AFloodOfDescriptorsFindsNoPlaceToArrive) {
  Start();
  const std::vector<int> many(250, 0);
  wire::Seek seek{};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  const int descriptors = OpenDescriptors();
  for (uint64_t i = 1; i <= 20; ++i) {
    auto attacker = Open();
    ASSERT_TRUE(attacker);
    for (int fd = 3; fd < 200; ++fd) {
      const int on = 1;
      setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &on,
                 sizeof(on));  // fails on what is no Unix socket
    }
    seek.serial = static_cast<uint32_t>(i);
    ASSERT_TRUE(attacker->trainer.SendBytes(&seek, sizeof(seek), many)) << strerror(errno);
    for (int more = 0; more < 5; ++more) attacker->trainer.SendBytes(&seek, sizeof(seek), many);
    EXPECT_TRUE(attacker->trainer.Closing());
    EXPECT_TRUE(CountBecomes("protocol_descriptors", i));
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == descriptors; })) << OpenDescriptors();
}

// It releases what it has not read, so the daemon may lend again and again; its queue fills.
TEST_F(HostileClient, AClientThatNeverReadsLosesItsSessionAndBlocksNobody) {
  Start();
  auto bystander = Open();
  auto attacker = Open(Arena(/*slots=*/2));
  ASSERT_TRUE(attacker && bystander);
  uint64_t published = 0;
  while (*attacker->closed == 0 && published < 100'000) {
    const int slot = attacker->pool->Acquire();
    if (slot < 0) continue;
    attacker->pool->Publish(slot, {});
    ++published;
    attacker->trainer.Release(slot,
                              published);  // slot 0 is always the lowest free one once it is back
    ASSERT_TRUE(Eventually([&] {
      const SessionCounts counts = server_->Counts(attacker->ticket);
      return counts.lent == 0;
    }));
  }
  EXPECT_LT(published, 100'000u);
  EXPECT_EQ(Count("send_queue_full"), 1u);
  EXPECT_TRUE(Works(&*bystander));
}

TEST_F(HostileClient, AFloodOfValidMessagesDoesNotStarveOthers) {
  Start();
  auto bystander = Open(Arena(/*slots=*/1));
  auto flooder = Open();
  ASSERT_TRUE(bystander && flooder);
  std::atomic<bool> stop = false;
  uint32_t sent = 0;
  const int64_t begin_ns = MonotonicNs();
  std::thread flood([&] {
    while (!stop && flooder->trainer.Seek(sent + 1, 0, 0)) ++sent;
  });
  for (int i = 0; i < 500 || MonotonicNs() - begin_ns < 1'000'000'000; ++i)
    EXPECT_TRUE(Works(&*bystander));  // one slot: each needs the last one's release
  stop = true;
  flood.join();
  EXPECT_EQ(*flooder->closed, 0);
  const double seconds = static_cast<double>(MonotonicNs() - begin_ns) / 1e9;
  EXPECT_LT(sent, 2000 + 1000 * seconds) << "a thousand a second are read, and the queue is full";
  EXPECT_TRUE(Works(&*flooder)) << "once its seeks have been read";
}

// Structure-aware fuzzing of a live server: mostly right conversations with wrong turns. The
// bystander's batches go on, and afterwards nothing is left.
TEST_F(HostileClient, RandomConversationsHarmNobody) {
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "FEEDWATER_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const char* tier = std::getenv("FEEDWATER_FUZZ_MESSAGES");
  const int64_t messages = tier != nullptr ? std::strtoll(tier, nullptr, 10) : 30'000;
  Start();
  auto bystander = Open();
  ASSERT_TRUE(bystander);
  const int descriptors = OpenDescriptors();
  for (int64_t sent = 0; sent < messages;) {
    auto attacker = Open();
    ASSERT_TRUE(attacker);
    uint32_t serial = 0;
    std::vector<wire::Ready> lent;
    for (bool alive = true; alive; ++sent) {
      if (const int slot = attacker->pool->Acquire(); slot >= 0) attacker->pool->Publish(slot, {});
      while (attacker->trainer.HasInput(0)) {
        const auto packet = attacker->trainer.Receive();
        if (!packet || packet->Is(wire::Type::kClosing)) {
          alive = false;
          break;
        }
        lent.push_back(packet->As<wire::Ready>());
      }
      switch (random() % 32) {
        case 0: {
          std::vector<char> noise(random() % 64);
          for (char& byte : noise) byte = static_cast<char>(random());
          alive &= attacker->trainer.SendBytes(noise.data(), noise.size());
          break;
        }
        case 1:
          alive &= attacker->trainer.Release(random() % 8, random() % 16);
          break;
        case 2:
          attacker->trainer.Close();
          alive = false;
          break;
        case 3:
          alive &= attacker->trainer.Seek(static_cast<uint32_t>(random() % (serial + 2)), random(),
                                          random() % 99);
          break;
        case 4:
        case 5:
          alive &= attacker->trainer.Seek(++serial, random(), static_cast<int64_t>(random() >> 1));
          break;
        default:
          if (lent.empty()) break;
          alive &= attacker->trainer.Release(lent.back());
          lent.pop_back();
      }
    }
    if (random() % 4 == 0) {
      ASSERT_TRUE(Works(&*bystander));
    }
  }
  EXPECT_TRUE(Works(&*bystander));
  EXPECT_EQ(*bystander->closed, 0);
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == descriptors; })) << OpenDescriptors();
}

}  // namespace
}  // namespace feedwater::server
