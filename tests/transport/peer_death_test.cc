// Trainers that die, in every way: killed, leaving a forked child behind, merely stopped. The
// kernel tells the daemon by the socket or the pidfd; everything of the dead is given back and
// nothing is ever taken from the living.
//
// The trainers are forked children of the test that speak the raw protocol. They close every
// descriptor that they inherit, so that they are as separate as a real trainer is.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/test_seed.h"
#include "tests/transport/data_server_fixture.h"

namespace feedwater::server {
namespace {

class PeerDeath : public DataServerTest {
 protected:
  struct Child {
    pid_t pid = -1;
    SessionTicket ticket{};
  };

  // A trainer process: says hello, tells the test its ticket, and then runs `life`. It leaves with
  // life's result.
  Child Fork(const std::function<int(FakeTrainer*)>& life) {
    int pipe_fds[2];
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    Child child;
    child.pid = fork();
    if (child.pid == 0) {
      dup2(pipe_fds[1], 3);
      close_range(4, ~0u, 0);
      FakeTrainer trainer(path_);
      const auto ticket = trainer.Hello();
      if (!ticket ||
          write(3, ticket->data(), ticket->size()) != static_cast<ssize_t>(ticket->size()))
        _exit(90);
      close(3);
      _exit(life(&trainer));
    }
    close(pipe_fds[1]);
    EXPECT_EQ(read(pipe_fds[0], child.ticket.data(), child.ticket.size()),
              static_cast<ssize_t>(child.ticket.size()));
    close(pipe_fds[0]);
    return child;
  }

  static int Wait(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }

  // An honest trainer that checks every byte of its batches. 91: something was wrong; 92: the
  // conversation ended.
  static int Train(FakeTrainer* trainer) {
    if (!trainer->ReceiveArena()) return 92;
    while (const auto ready = trainer->Next()) {
      const std::byte* data = trainer->slot(ready->slot);
      for (int i = 0; i < 8 * 1000; ++i) {
        if (data[i] != static_cast<std::byte>(ready->step)) return 91;
      }
      if (!trainer->Release(*ready)) return 92;
    }
    return 92;
  }

  // What the pipeline does: fills and publishes until the session is over.
  static void Feed(SlotPool* pool, const std::atomic<int>* closed) {
    for (int64_t step = 0; *closed == 0;) {
      const int slot = pool->Acquire();
      if (slot < 0) {
        std::this_thread::yield();
        continue;
      }
      std::memset(pool->data(slot), static_cast<int>(step & 0xff), 8 * 1000);
      BatchMeta meta;
      meta.step = step++;
      meta.samples = 8;
      pool->Publish(slot, meta);
    }
  }

  static SessionEvents CountClosed(std::atomic<int>* closed) {
    SessionEvents events;
    events.closed = [closed] { ++*closed; };
    return events;
  }
};

TEST_F(PeerDeath, TwoHundredKilledTrainersLeaveNothing) {
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "FEEDWATER_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Start();
  ArenaOptions arena = Arena();
  arena.checksum = true;
  arena.budget = MemoryBudget::Create(1 << 30);
  const int descriptors = OpenDescriptors();
  for (uint64_t i = 1; i <= 200; ++i) {
    const Child child = Fork(Train);
    std::atomic<int> closed = 0;
    auto pool = server_->OpenSession(child.ticket, arena, CountClosed(&closed));
    ASSERT_TRUE(pool.ok()) << pool.status();
    std::thread worker([&] { Feed(pool->get(), &closed); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5'000));
    kill(child.pid, SIGKILL);
    const int status = Wait(child.pid);
    EXPECT_TRUE(WIFSIGNALED(status)) << "trainer left with " << WEXITSTATUS(status);
    EXPECT_TRUE(Eventually([&] { return closed == 1; })) << i;
    worker.join();
  }
  EXPECT_TRUE(
      Eventually([&] { return Count("reclaimed_hangup") + Count("reclaimed_pidfd") == 200; }));
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == descriptors; })) << OpenDescriptors();
  EXPECT_EQ(MappedArenas(), 0);
  // The budget lets an arena go only when the kernel says that nobody holds its memory.
  EXPECT_TRUE(Eventually([&] { return arena.budget->planned_bytes() == 0; }))
      << arena.budget->Sum();
  EXPECT_EQ(server_->sessions(getuid()), 0);
}

TEST_F(PeerDeath, ATrainerWhoseForkedChildKeepsTheSocketIsReclaimedByItsPidfd) {
  Start();
  for (uint64_t i = 1; i <= 20; ++i) {
    const Child child = Fork([](FakeTrainer* trainer) {
      if (!trainer->ReceiveArena()) return 92;
      if (fork() == 0) {  // as a PyTorch worker: it lives on, with socket and mapping
        sleep(60);
        _exit(0);
      }
      trainer->Seek(1, 0, 0);
      sleep(60);
      return 0;
    });
    std::atomic<int> closed = 0, forked = 0;
    SessionEvents events = CountClosed(&closed);
    events.seek = [&](uint32_t, uint64_t, int64_t) { ++forked; };
    auto pool = server_->OpenSession(child.ticket, Arena(), events);
    ASSERT_TRUE(pool.ok()) << pool.status();
    ASSERT_TRUE(Eventually([&] { return forked == 1; }));
    // The grandchild, which nobody else will end, found as the only child of the child.
    std::ifstream children("/proc/" + std::to_string(child.pid) + "/task/" +
                           std::to_string(child.pid) + "/children");
    pid_t grandchild = 0;
    children >> grandchild;
    ASSERT_GT(grandchild, 0);
    kill(child.pid, SIGKILL);
    Wait(child.pid);
    EXPECT_TRUE(Eventually([&] { return closed == 1; }));
    EXPECT_EQ(kill(grandchild, 0), 0) << "the grandchild is meant to live";
    kill(grandchild, SIGKILL);
    EXPECT_TRUE(CountBecomes("reclaimed_pidfd", i));
  }
}

TEST_F(PeerDeath, AForkedChildThatDiesTakesNothingFromItsParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan's own memory is gone in a fork of a fork, at times";
#endif
  Start();
  const Child child = Fork([](FakeTrainer* trainer) {
    if (!trainer->ReceiveArena()) return 92;
    const pid_t worker = fork();
    if (worker == 0) _exit(0);
    waitpid(worker, nullptr, 0);
    const auto ready = trainer->Next();
    return ready && trainer->Release(*ready) && !trainer->Next() ? 0 : 91;
  });
  std::atomic<int> closed = 0, freed = 0;
  auto pool = server_->OpenSession(child.ticket, Arena(), CountClosed(&closed));
  ASSERT_TRUE(pool.ok()) << pool.status();
  (*pool)->OnSlotFree([&] { ++freed; });
  (*pool)->Publish((*pool)->Acquire(), {});
  EXPECT_TRUE(Eventually([&] { return freed == 1; }));
  EXPECT_EQ(closed, 0);
  server_->CloseSession(child.ticket, absl::OkStatus());
  EXPECT_EQ(Wait(child.pid), 0);
}

TEST_F(PeerDeath, AStoppedTrainerIsNotReaped) {
  Start([](DataServer::Options* options) { options->limits.handshake_seconds = 0.05; });
  const Child child = Fork([](FakeTrainer* trainer) {
    if (!trainer->ReceiveArena()) return 92;
    const auto ready = trainer->Next();
    return ready && trainer->Release(*ready) && !trainer->Next() ? 0 : 91;
  });
  std::atomic<int> closed = 0, freed = 0;
  auto pool = server_->OpenSession(child.ticket, Arena(), CountClosed(&closed));
  ASSERT_TRUE(pool.ok()) << pool.status();
  (*pool)->OnSlotFree([&] { ++freed; });
  kill(child.pid, SIGSTOP);
  int status;
  waitpid(child.pid, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  (*pool)->Publish((*pool)->Acquire(), {});
  FakeTrainer timed_out(path_);
  EXPECT_TRUE(timed_out.Closing());  // every time limit there is has passed
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(freed, 0);
  EXPECT_EQ(server_->Counts(child.ticket).lent, 1);
  kill(child.pid, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return freed == 1; }));
  server_->CloseSession(child.ticket, absl::OkStatus());
  EXPECT_EQ(Wait(child.pid), 0);
}

TEST_F(PeerDeath, DyingBeforeTheArenaArrivesIsAnErrorNotAHang) {
  Start();
  const int descriptors = OpenDescriptors();
  ArenaOptions arena = Arena();
  arena.budget = MemoryBudget::Create(1 << 30);
  for (int i = 0; i < 50; ++i) {
    const Child child = Fork([](FakeTrainer*) { return 0; });
    std::atomic<int> closed = 0;
    // Either it was seen to be gone, or it opened and ends at once.
    const auto pool = server_->OpenSession(child.ticket, arena, CountClosed(&closed));
    Wait(child.pid);
    if (pool.ok()) {
      EXPECT_TRUE(Eventually([&] { return closed == 1; }));
    } else {
      EXPECT_TRUE(pool.status().code() == absl::StatusCode::kNotFound ||
                  pool.status().code() == absl::StatusCode::kUnavailable)
          << pool.status();
    }
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == descriptors; }));
  EXPECT_TRUE(Eventually([&] { return arena.budget->planned_bytes() == 0; }));
}

TEST_F(PeerDeath, ReclaimDoesNotWaitForAWorkerThatIsStillWriting) {
  Start();
  ArenaOptions arena = Arena();
  arena.budget = MemoryBudget::Create(1 << 30);
  const Child child = Fork(Train);
  std::atomic<int> closed = 0;
  auto pool = server_->OpenSession(child.ticket, arena, CountClosed(&closed));
  ASSERT_TRUE(pool.ok()) << pool.status();
  const int slot = (*pool)->Acquire();  // and never published: a decode that takes for ever
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    for (int i = 0; !stop; ++i) std::memset((*pool)->data(slot), i, 8 * 1000);
  });
  kill(child.pid, SIGKILL);
  Wait(child.pid);
  EXPECT_TRUE(Eventually([&] { return closed == 1; }));
  EXPECT_TRUE(Eventually([&] { return arena.budget->planned_bytes() == 0; }))
      << "the memory is back while the worker writes on";
  EXPECT_EQ(MappedArenas(), 0);
  EXPECT_TRUE(Open());  // the next client is served
  stop = true;
  worker.join();
  (*pool)->Publish(slot, {});
}

// A lease on the arena would be broken by this client, again and again, with a signal each time.
TEST_F(PeerDeath, ATrainerThatOpensItsArenaAgainAndAgainCausesNoSignal) {
  Start();
  for (int i = 0; i < 30; ++i) {
    const Child child = Fork([](FakeTrainer* trainer) {
      if (!trainer->ReceiveArena()) return 92;
      const std::string arena = "/proc/self/fd/" + std::to_string(trainer->arena_fd());
      const int path = open(arena.c_str(), O_PATH | O_CLOEXEC);
      trainer->DropArena();
      trainer->Close();
      const std::string again = "/proc/self/fd/" + std::to_string(path);
      for (int n = 0; n < 20'000; ++n) close(open(again.c_str(), O_RDONLY | O_NONBLOCK));
      return 0;
    });
    std::atomic<int> closed = 0;
    auto pool = server_->OpenSession(child.ticket, Arena(), CountClosed(&closed));
    ASSERT_TRUE(pool.ok()) << pool.status();
    EXPECT_EQ(Wait(child.pid), 0);
    EXPECT_TRUE(Eventually([&] { return closed == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return server_->arenas() == 0; }));
}

TEST_F(PeerDeath, MemoryThatATrainerKeepsCostsNoDescriptorAndIsBounded) {
  Start([](DataServer::Options* options) { options->limits.connections_per_uid = 16; });
  const int descriptors = OpenDescriptors();
  std::vector<FakeTrainer> kept;  // each with its mapping; their own descriptors are closed
  absl::Status refused;
  for (int i = 0; i < 40 && refused.ok(); ++i) {
    FakeTrainer trainer(path_);
    const auto ticket = trainer.Hello();
    ASSERT_TRUE(ticket);
    std::atomic<int> closed = 0;
    auto pool = server_->OpenSession(*ticket, Arena(), CountClosed(&closed));
    refused = pool.status();
    if (!pool.ok()) break;
    ASSERT_TRUE(trainer.ReceiveArena());
    trainer.Close();
    ASSERT_TRUE(Eventually([&] { return closed == 1; }));
    kept.push_back(std::move(trainer));
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(kept.size(), 32u);
  // One descriptor each is the trainer's, which is in this process.
  EXPECT_TRUE(Eventually([&] {
    return OpenDescriptors() <= descriptors + static_cast<int>(kept.size());
  })) << OpenDescriptors()
      << " after " << descriptors;
  kept.clear();
  EXPECT_TRUE(Eventually([&] { return server_->arenas() == 0; }));
  EXPECT_TRUE(Open());
}

}  // namespace
}  // namespace feedwater::server
