// The honest life of a session: handshake, batches there and back, seeks, failures, the end. A raw
// client speaks over a real socket; hostile ones are in hostile_client_test.cc, dying ones in
// peer_death_test.cc.
#include "server/transport/data_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "proto/shm/crc32c.h"
#include "server/base/clock.h"
#include "tests/transport/data_server_fixture.h"

namespace feedwater::server {
namespace {

BatchMeta Meta(int64_t step) {
  BatchMeta meta;
  meta.epoch = 3;
  meta.step = step;
  meta.next_position = (step + 1) * 8;
  meta.samples = 8;
  meta.real_samples = 7;
  meta.substituted = 1;
  return meta;
}

TEST_F(DataServerTest, ABatchIsReadWhereItWasWritten) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  EXPECT_EQ(session->trainer.arena().slots, 4u);
  const int slot = session->pool->Acquire();
  ASSERT_GE(slot, 0);
  std::memset(session->pool->data(slot), 0x5a, 8 * 1000);
  BatchMeta meta = Meta(5);
  meta.serial = 0;
  meta.last_in_epoch = true;
  const int64_t before = MonotonicNs();
  session->pool->Publish(slot, meta);
  const auto ready = session->trainer.Next();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->slot, static_cast<uint32_t>(slot));
  EXPECT_EQ(ready->generation, 1u);
  EXPECT_EQ(ready->epoch, 3u);
  EXPECT_EQ(ready->step, 5);
  EXPECT_EQ(ready->next_position, 48);
  EXPECT_EQ(ready->samples, 8u);
  EXPECT_EQ(ready->real_samples, 7u);
  EXPECT_EQ(ready->substituted, 1u);
  EXPECT_EQ(ready->flags, wire::kReadyLastInEpoch);
  EXPECT_EQ(ready->crc32c, 0u);
  EXPECT_GE(ready->published_ns, before);
  EXPECT_LE(ready->published_ns, MonotonicNs());
  for (int i = 0; i < 8 * 1000; ++i)
    ASSERT_EQ(session->trainer.slot(ready->slot)[i], std::byte{0x5a}) << i;
}

TEST_F(DataServerTest, TheTicketNamesTheUserAndTheProcess) {
  Start();
  FakeTrainer trainer(path_);
  const auto ticket = trainer.Hello();
  ASSERT_TRUE(ticket);
  const auto peer = server_->Identify(*ticket);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->uid, getuid());
  EXPECT_EQ(peer->gid, getgid());
  EXPECT_EQ(peer->pid, getpid());
  trainer.Close();
  EXPECT_TRUE(Eventually([&] {
    return server_->Identify(*ticket).status().code() == absl::StatusCode::kUnavailable;
  }));
}

TEST_F(DataServerTest, EveryConnectionHasAnotherTicketAndAWrongOneOpensNothing) {
  Start();
  FakeTrainer one(path_), two(path_);
  const auto first = one.Hello(), second = two.Hello();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  SessionTicket wrong = *first;
  wrong[7] ^= 1;
  EXPECT_EQ(server_->Identify(wrong).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->OpenSession(wrong, Arena(), {}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(DataServerTest, AReleasedSlotIsLentAgainWithTheNextGeneration) {
  Start();
  auto session = Open(Arena(/*slots=*/1));
  ASSERT_TRUE(session);
  std::atomic<int> woken = 0;
  session->pool->OnSlotFree([&] { ++woken; });
  for (int i = 1; i <= 100; ++i) {
    const int slot = session->pool->Acquire();
    ASSERT_EQ(slot, 0);
    EXPECT_EQ(session->pool->Acquire(), -1);
    session->pool->Publish(slot, Meta(i));
    const auto ready = session->trainer.Next();
    ASSERT_TRUE(ready);
    ASSERT_EQ(ready->generation, static_cast<uint64_t>(i));
    EXPECT_EQ(server_->Counts(session->ticket).lent, 1);
    ASSERT_TRUE(session->trainer.Release(*ready));
    ASSERT_TRUE(Eventually([&] { return woken == i; }));
  }
  EXPECT_EQ(server_->Counts(session->ticket).lent, 0);
  EXPECT_EQ(server_->Counts(session->ticket).slots, 1);
}

TEST_F(DataServerTest, AnAbandonedSlotIsFreeAndWakes) {
  Start();
  auto session = Open(Arena(/*slots=*/1));
  ASSERT_TRUE(session);
  std::atomic<int> woken = 0;
  session->pool->OnSlotFree([&] { ++woken; });
  const int slot = session->pool->Acquire();
  session->pool->Abandon(slot);
  EXPECT_EQ(woken, 1);
  session->pool->Abandon(slot);  // not being filled any more: refused
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(session->pool->Acquire(), slot);
}

TEST_F(DataServerTest, BatchesPublishedBeforeTheClientReadsWaitInOrder) {
  Start();
  auto session = Open(Arena(/*slots=*/wire::kMaxSlots));
  ASSERT_TRUE(session);
  for (uint32_t i = 0; i < wire::kMaxSlots; ++i) {
    const int slot = session->pool->Acquire();
    ASSERT_GE(slot, 0);
    session->pool->Publish(slot, Meta(i));
  }
  EXPECT_EQ(session->pool->Acquire(), -1);
  EXPECT_EQ(server_->Counts(session->ticket).ready, static_cast<int>(wire::kMaxSlots));
  for (uint32_t i = 0; i < wire::kMaxSlots; ++i) {
    const auto ready = session->trainer.Next();
    ASSERT_TRUE(ready);
    ASSERT_EQ(ready->step, i);
    // What the client has read is in its hands, and no longer ready.
    const SessionCounts counts = server_->Counts(session->ticket);
    EXPECT_EQ(counts.ready, static_cast<int>(wire::kMaxSlots - i - 1));
    EXPECT_EQ(counts.lent, static_cast<int>(wire::kMaxSlots));
  }
}

TEST_F(DataServerTest, TheChecksumCoversTheFilledPartOfEachField) {
  Start();
  ArenaOptions arena = Arena();
  arena.checksum = true;
  auto session = Open(arena);
  ASSERT_TRUE(session);
  const int slot = session->pool->Acquire();
  std::byte* data = session->pool->data(slot);
  for (int64_t i = 0; i < arena.layout.slot_bytes; ++i)
    data[i] = static_cast<std::byte>(i * 31 + 7);
  BatchMeta meta = Meta(0);
  meta.samples = 5;  // of 8
  session->pool->Publish(slot, meta);
  const auto ready = session->trainer.Next();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->flags, wire::kReadyHasCrc);
  const std::byte* seen = session->trainer.slot(ready->slot);
  uint32_t crc = wire::Crc32c(0, seen, 5 * 1000);
  crc = wire::Crc32c(crc, seen + arena.layout.outputs[1].offset, 5 * 8);
  EXPECT_EQ(ready->crc32c, crc);
}

TEST_F(DataServerTest, AFailureStandsInTheBatchsPlaceWithItsTextsCut) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  BatchFailure failure;
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "\xc3\xa4";  // 600 bytes of a two-byte letter
  failure.status = absl::DataLossError(long_text);
  failure.record = 41;
  failure.path = "x" + long_text;
  failure.reason = wire::FailReason::kTooManyBad;
  session->pool->Fail(Meta(9), failure);
  const auto packet = session->trainer.Receive();
  ASSERT_TRUE(packet && packet->Is(wire::Type::kFailed));
  EXPECT_EQ(packet->bytes.size(), sizeof(wire::FailedWithReason));
  const auto message = packet->As<wire::FailedWithReason>();
  EXPECT_EQ(message.reason, static_cast<uint32_t>(wire::FailReason::kTooManyBad));
  const wire::Failed& failed = message.failed;
  EXPECT_EQ(failed.code, static_cast<uint32_t>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(failed.record, 41);
  EXPECT_EQ(failed.epoch, 3u);
  EXPECT_EQ(failed.step, 9);
  EXPECT_EQ(failed.next_position, 80);
  // Cut between letters: 255 and 511 bytes have room for 127 and 255 whole ones.
  EXPECT_EQ(std::string(failed.path), "x" + long_text.substr(0, 254));
  EXPECT_EQ(std::string(failed.message), long_text.substr(0, 510));
}

TEST_F(DataServerTest, AClientOfVersion10GetsTheFailureThatItKnows) {
  Start();
  FakeTrainer trainer(path_);
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = 1;
  hello.minor = 0;
  ASSERT_TRUE(trainer.Send(hello));
  const auto answer = trainer.Receive();
  ASSERT_TRUE(answer && answer->Is(wire::Type::kWelcome));
  const auto welcome = answer->As<wire::Welcome>();
  EXPECT_EQ(welcome.minor, 0);
  SessionTicket ticket;
  std::copy(std::begin(welcome.ticket), std::end(welcome.ticket), ticket.begin());
  const auto pool = server_->OpenSession(ticket, Arena(), {});
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(trainer.ReceiveArena());
  BatchFailure failure{absl::DataLossError("why"), 41, "x", wire::FailReason::kBadRecord};
  (*pool)->Fail(Meta(9), failure);
  const auto packet = trainer.Receive();
  ASSERT_TRUE(packet && packet->Is(wire::Type::kFailed));
  EXPECT_EQ(packet->bytes.size(), sizeof(wire::Failed));
  EXPECT_EQ(packet->As<wire::Header>().size, sizeof(wire::Failed));
  EXPECT_STREQ(packet->As<wire::Failed>().message, "why");
}

TEST_F(DataServerTest, ASeekReachesTheServiceWithItsSerial) {
  Start();
  std::mutex mu;
  std::vector<std::string> seen;
  SessionEvents events;
  events.seek = [&](uint32_t serial, uint64_t epoch, int64_t position) {
    std::lock_guard<std::mutex> lock(mu);
    seen.push_back(std::to_string(serial) + " " + std::to_string(epoch) + " " +
                   std::to_string(position));
  };
  auto session = Open(Arena(), events);
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->trainer.Seek(1, 7, 1024));
  ASSERT_TRUE(Eventually([&] { return std::lock_guard(mu), seen.size() == 1; }));
  EXPECT_EQ(seen[0], "1 7 1024");
}

TEST_F(DataServerTest, OneConnectionHasOneStream) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  EXPECT_EQ(server_->OpenSession(session->ticket, Arena(), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server_->sessions(getuid()), 1);
  EXPECT_EQ(server_->sessions(getuid() + 1), 0);
}

TEST_F(DataServerTest, AConnectionThatIsHandedOverStaysOpenAndIsNoSessionAnyMore) {
  Start();
  FakeTrainer trainer(path_);
  const auto ticket = trainer.Hello();
  ASSERT_TRUE(ticket.has_value());
  auto connection = server_->HandOver(*ticket);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(connection->peer.pid, getpid());
  EXPECT_TRUE(CountBecomes("handed_over", 1));
  EXPECT_TRUE(absl::IsUnavailable(server_->HandOver(*ticket).status()));
  EXPECT_TRUE(absl::IsUnavailable(server_->OpenSession(*ticket, Arena(), {}).status()));
  // Whoever has it speaks with the client, and nobody else reads what that says.
  const char hello[] = "from its new owner";
  ASSERT_GT(send(connection->socket.get(), hello, sizeof(hello), MSG_NOSIGNAL), 0);
  char received[64] = {};
  ASSERT_EQ(recv(trainer.fd(), received, sizeof(received), 0), static_cast<ssize_t>(sizeof(hello)));
  ASSERT_GT(send(trainer.fd(), hello, sizeof(hello), MSG_NOSIGNAL), 0);
  ASSERT_EQ(recv(connection->socket.get(), received, sizeof(received), 0),
            static_cast<ssize_t>(sizeof(hello)));
}

TEST_F(DataServerTest, OneThatHasAStreamIsNotHandedOver) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->HandOver(session->ticket).status()));
}

TEST_F(DataServerTest, AnArenaOverTheBudgetIsRefusedWithTheSumAndASmallerOneMayFollow) {
  Start();
  ArenaOptions arena = Arena(/*slots=*/4, /*sample_bytes=*/1 << 20);  // 32 MiB
  arena.budget = MemoryBudget::Create(20 << 20);
  FakeTrainer trainer(path_);
  const auto ticket = trainer.Hello();
  ASSERT_TRUE(ticket);
  const auto refused = server_->OpenSession(*ticket, arena, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("arenas"), absl::string_view::npos) << refused.status();
  EXPECT_EQ(arena.budget->planned_bytes(), 0);
  arena.slots = 1;
  EXPECT_TRUE(server_->OpenSession(*ticket, arena, {}).ok());
  EXPECT_GT(arena.budget->planned_bytes(), 8 << 20);
}

TEST_F(DataServerTest, ASizeThatOverflowsIsInvalid) {
  SlotLayout layout = Arena().layout;
  EXPECT_EQ(*ArenaBytes(layout, 3), 3 * layout.slot_bytes);
  EXPECT_EQ(ArenaBytes(layout, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ArenaBytes(layout, wire::kMaxSlots + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  layout.slot_bytes = int64_t{1} << 61;
  EXPECT_EQ(ArenaBytes(layout, 64).status().code(), absl::StatusCode::kInvalidArgument);
  layout.slot_bytes = 4097;
  EXPECT_EQ(ArenaBytes(layout, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DataServerTest, TheServiceCanEndASessionAndSaysWhy) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  server_->CloseSession(session->ticket, absl::UnavailableError("draining"));
  const auto closing = session->trainer.Closing();
  ASSERT_TRUE(closing);
  EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  EXPECT_STREQ(closing->message, "draining");
  EXPECT_FALSE(session->trainer.Receive());
  EXPECT_TRUE(Eventually([&] { return *session->closed == 1; }));
  EXPECT_TRUE(CountBecomes("closed_by_daemon", 1));
  EXPECT_EQ(session->pool->Acquire(), -1);
}

TEST_F(DataServerTest, APoolOutlivesItsSessionForAWorkerThatIsStillWriting) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  const int slot = session->pool->Acquire();
  session->trainer.Close();
  ASSERT_TRUE(Eventually([&] { return *session->closed == 1; }));
  std::memset(session->pool->data(slot), 1, 8 * 1000);
  session->pool->Publish(slot, Meta(0));  // to nobody
  session->pool->Fail(Meta(1), {absl::DataLossError("x"), -1, ""});
  EXPECT_EQ(session->pool->Acquire(), -1);
  session->trainer.DropArena();
  // The worker writes into private memory now, and the arena's has gone back.
  EXPECT_TRUE(Eventually([&] { return MappedArenas() == 0; }));
  server_.reset();
  std::memset(session->pool->data(slot), 2, 8 * 1000);
  session->pool->Abandon(session->pool->Acquire());
  session->pool.reset();
}

TEST_F(DataServerTest, StoppingTellsEveryClientAndTheirBatchesStayReadable) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  const int slot = session->pool->Acquire();
  std::memset(session->pool->data(slot), 0x77, 8 * 1000);
  session->pool->Publish(slot, Meta(0));
  const auto ready = session->trainer.Next();
  ASSERT_TRUE(ready);
  FakeTrainer half_open(path_);
  ASSERT_TRUE(half_open.Hello());
  server_.reset();
  session->pool.reset();
  for (FakeTrainer* trainer : {&session->trainer, &half_open}) {
    const auto closing = trainer->Closing();
    ASSERT_TRUE(closing);
    EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  }
  EXPECT_EQ(*session->closed, 1);
  EXPECT_EQ(session->trainer.slot(ready->slot)[7999], std::byte{0x77});
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(DataServerTest, TheBudgetCountsWhatAClientKeepsBeyondItsSession) {
  Start();
  ArenaOptions arena = Arena();
  arena.budget = MemoryBudget::Create(1 << 30);
  auto session = Open(arena);
  ASSERT_TRUE(session);
  const int64_t bytes = *ArenaBytes(arena.layout, arena.slots);
  EXPECT_EQ(arena.budget->planned_bytes(), bytes);
  session->trainer.Close();
  session->pool.reset();
  // The test is the client's process too: of the two mappings the daemon's goes.
  ASSERT_TRUE(Eventually([&] { return MappedArenas() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(arena.budget->planned_bytes(), bytes);
  session->trainer.DropArena();
  EXPECT_TRUE(Eventually([&] { return arena.budget->planned_bytes() == 0; }));
}

TEST_F(DataServerTest, OpeningAndClosingLeavesNothingBehind) {
  Start();
  const int descriptors = OpenDescriptors();
  ArenaOptions arena = Arena();
  arena.budget = MemoryBudget::Create(1 << 30);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(Open(arena)) << i;
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == descriptors; })) << OpenDescriptors();
  EXPECT_TRUE(Eventually([&] { return arena.budget->planned_bytes() == 0; }));
  EXPECT_EQ(MappedArenas(), 0);
  EXPECT_EQ(Count("opened"), 500u);
}

TEST_F(DataServerTest, ManySessionsRunBesideEachOther) {
  Start();
  constexpr int kSessions = 6, kBatches = 300;
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int s = 0; s < kSessions; ++s) {
    threads.emplace_back([&, s] {
      auto session = Open(Arena(/*slots=*/3));
      if (!session) return;
      std::thread worker([&, s] {
        for (int i = 0; i < kBatches; ++i) {
          int slot;
          while ((slot = session->pool->Acquire()) < 0) std::this_thread::yield();
          std::memset(session->pool->data(slot), (s * 41 + i) & 0xff, 8 * 1000);
          session->pool->Publish(slot, Meta(i));
        }
      });
      bool good = true;
      for (int i = 0; i < kBatches && good; ++i) {
        const auto ready = session->trainer.Next();
        good = ready && ready->step == i &&
               session->trainer.slot(ready->slot)[4321] ==
                   static_cast<std::byte>((s * 41 + i) & 0xff) &&
               session->trainer.Release(*ready);
      }
      if (!good) server_->CloseSession(session->ticket, absl::InternalError("test failed"));
      worker.join();
      right += good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kSessions);
}

}  // namespace
}  // namespace feedwater::server
