// What the hand-over costs, with a null pipeline on one side and a raw trainer process on the
// other:
//   publish -> seen   from the daemon's READY to the waiting trainer holding it
//   release -> free   from the trainer's RELEASE to the slot being free
//   reclaim           from kill -9 of the trainer to the session being over
//   arena             making one: allocate, prefault, seal
// Usage: transport_bench [ROUNDS] [BATCH]    (default 2000 hand-overs, after each hundredth of
// which the trainer is killed; batches of 64 float32 images of 224x224). Prints one JSON document:
// bytes of a batch, and p50, p99 and max of each in microseconds.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/base/clock.h"
#include "server/transport/data_server.h"
#include "tests/testing/fake_trainer.h"

namespace feedwater::server {
namespace {

nlohmann::json Percentiles(std::vector<int64_t> ns) {
  std::sort(ns.begin(), ns.end());
  const auto us = [](int64_t t) { return 1e-3 * static_cast<double>(t); };
  return {{"p50", us(ns[ns.size() / 2])},
          {"p99", us(ns[ns.size() * 99 / 100])},
          {"max", us(ns.back())},
          {"count", ns.size()}};
}

struct Trainer {
  pid_t pid = -1;
  int pipe = -1;  // tickets and times from the trainer
  SessionTicket ticket{};
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

int Main(int rounds, int batch) {
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
  arena.layout = *SlotLayout::Create({image}, batch, int64_t{1} << 40);
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
  const nlohmann::json document = {{"batch_bytes", *ArenaBytes(arena.layout, 1)},
                                   {"seen", Percentiles(seen)},
                                   {"freed", Percentiles(freed)},
                                   {"reclaimed", Percentiles(reclaimed)},
                                   {"arena", Percentiles(made)}};
  std::printf("%s\n", document.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace feedwater::server

int main(int argc, char** argv) {
  return feedwater::server::Main(argc > 1 ? std::max(100, std::atoi(argv[1])) : 2000,
                                 argc > 2 ? std::max(1, std::atoi(argv[2])) : 64);
}
