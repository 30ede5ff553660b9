// What the hand-over costs, with a null pipeline on one side and a raw trainer process on the
// other:
//   publish -> seen   from the daemon's READY to the waiting trainer holding it
//   release -> free   from the trainer's RELEASE to the slot being free
//   reclaim           from kill -9 of the trainer to the session being over
//   arena             making one: allocate, prefault, seal
// Usage: transport_bench [ROUNDS]    (default 2000; a hundredth of them are killed)
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "server/base/clock.h"
#include "server/transport/data_server.h"
#include "tests/testing/fake_trainer.h"

namespace feedwater::server {
namespace {

void Print(const char* what, std::vector<int64_t> ns) {
  if (ns.empty()) return;
  std::sort(ns.begin(), ns.end());
  std::printf("%-16s p50 %8.1f us   p99 %8.1f us   max %8.1f us   (%zu)\n", what,
              ns[ns.size() / 2] / 1e3, ns[ns.size() * 99 / 100] / 1e3, ns.back() / 1e3, ns.size());
}

struct Trainer {
  pid_t pid = -1;
  int pipe = -1;  // tickets and times from the trainer
  Ticket ticket{};
};

// A process that sends its ticket, then for each batch the time it took to arrive.
Trainer ForkTrainer(const std::string& path) {
  int fds[2];
  if (pipe(fds) != 0) std::exit(1);
  Trainer trainer;
  trainer.pid = fork();
  if (trainer.pid == 0) {
    dup2(fds[1], 3);
    close_range(4, ~0u, 0);
    testing::FakeTrainer client(path);
    const auto ticket = client.Hello();
    if (!ticket || write(3, ticket->data(), ticket->size()) < 0 || !client.ReceiveArena()) _exit(1);
    while (const auto ready = client.Next()) {
      const int64_t times[2] = {MonotonicNs() - ready->published_ns, MonotonicNs()};
      client.Release(*ready);
      if (write(3, times, sizeof(times)) < 0) _exit(1);
    }
    _exit(0);
  }
  close(fds[1]);
  trainer.pipe = fds[0];
  if (read(trainer.pipe, trainer.ticket.data(), trainer.ticket.size()) !=
      static_cast<ssize_t>(trainer.ticket.size())) {
    std::fprintf(stderr, "the trainer did not start\n");
    std::exit(1);
  }
  return trainer;
}

int Main(int rounds) {
  DataServer::Options options;
  options.socket_path = "/tmp/transport_bench." + std::to_string(getpid()) + ".sock";
  auto server = DataServer::Create(options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  FieldSpec image;
  image.name = "image";
  image.spec = {DType::kFloat32, Layout::kCHW, {3, 224, 224}};
  ArenaOptions arena;
  arena.layout = *SlotLayout::Create({image}, 64, int64_t{1} << 40);
  arena.slots = 4;

  std::vector<int64_t> seen, freed, reclaimed, made;
  for (int killed = 0; killed < std::max(1, rounds / 100); ++killed) {
    const Trainer trainer = ForkTrainer(options.socket_path);
    std::atomic<int64_t> closed_ns = 0, freed_ns = 0;
    SessionEvents events;
    events.closed = [&] { closed_ns = MonotonicNs(); };
    const int64_t start = MonotonicNs();
    auto pool = (*server)->OpenSession(trainer.ticket, arena, events);
    made.push_back(MonotonicNs() - start);
    if (!pool.ok()) {
      std::fprintf(stderr, "%s\n", pool.status().ToString().c_str());
      return 1;
    }
    (*pool)->OnSlotFree([&] { freed_ns = MonotonicNs(); });
    for (int i = 0; i < 100; ++i) {
      freed_ns = 0;
      (*pool)->Publish((*pool)->Acquire(), {});
      int64_t times[2];
      if (read(trainer.pipe, times, sizeof(times)) != sizeof(times)) return 1;
      while (freed_ns == 0) std::this_thread::yield();
      seen.push_back(times[0]);
      freed.push_back(freed_ns - times[1]);
      std::this_thread::sleep_for(
          std::chrono::microseconds(200));  // so that the trainer really sleeps
    }
    const int64_t kill_ns = MonotonicNs();
    kill(trainer.pid, SIGKILL);
    while (closed_ns == 0) std::this_thread::yield();
    reclaimed.push_back(closed_ns - kill_ns);
    waitpid(trainer.pid, nullptr, 0);
    close(trainer.pipe);
  }
  Print("publish -> seen", seen);
  Print("release -> free", freed);
  Print("reclaim", reclaimed);
  Print("arena", made);
  std::printf("an arena here has %.0f MiB\n", *ArenaBytes(arena.layout, arena.slots) / 1048576.0);
  return 0;
}

}  // namespace
}  // namespace feedwater::server

int main(int argc, char** argv) {
  return feedwater::server::Main(argc > 1 ? std::max(100, std::atoi(argv[1])) : 2000);
}
