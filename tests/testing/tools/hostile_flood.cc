// hostile_flood ADDRESS: sends a live daemon what no client should, on both sockets, from a seed.
//
// Structure-aware: most conversations begin rightly, with HELLO and OpenStream, and then take wrong
// turns, because what is wrong from its first byte gets no further than the first check. A message
// is a packet on data.sock, a call or a piece of noise on control.sock. The daemon must answer each
// with an error or by hanging up; what matters is what happens to everybody else, which the caller
// watches. Prints one JSON document. Exit status: 0 the daemon was there to the end, 1 it was not.
#include <grp.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "feedwater/v1/control.grpc.pb.h"
#include "tests/testing/flood/control_attacks.h"
#include "tests/testing/flood/data_attacks.h"
#include "tests/testing/flood/flood.h"

namespace feedwater::testing {
namespace {

// One attacker, until all messages are sent.
void Attack(const FloodOptions& options, uint64_t seed, FloodTally* tally) {
  Dice dice(seed);
  ControlAttacks control(options, &dice, tally);
  DataAttacks data(options, &dice, tally, &control);
  while (!tally->done()) {
    tally->Count("conversations");
    switch (dice.Below(16)) {
      case 0:
        data.Strangers();
        break;
      case 1:
        control.WrongCalls();
        break;
      case 2:
        control.RawCall();
        break;
      case 3:
        control.Noise();
        break;
      case 4:
        data.HalfOpen();
        break;
      case 5:
      case 6:
        data.Flood();
        break;
      default:
        data.Session();
    }
    if (dice.Below(256) == 0) control.Connect();
  }
}

bool StillThere(const std::string& address) {
  const auto stub = v1::Control::NewStub(
      grpc::CreateChannel("unix:" + address + "/control.sock", grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTime);
  context.set_wait_for_ready(true);
  v1::GetStatusResponse response;
  return stub->GetStatus(&context, {}, &response).ok();
}

int Main(int argc, char** argv) {
  FloodOptions options;
  CLI::App app("Sends a live daemon what no client should.");
  app.add_option("ADDRESS", options.address, "The daemon's runtime folder")->required();
  app.add_option("--messages", options.messages, "How many messages")->capture_default_str();
  app.add_option("--seed", options.seed, "Of all random choices")->capture_default_str();
  app.add_option("--threads", options.threads, "Attackers at a time")->capture_default_str();
  app.add_option("--pipeline", options.pipeline, "For sessions that begin rightly")
      ->capture_default_str();
  app.add_option("--uid", options.uid, "Become this user and group first");
  CLI11_PARSE(app, argc, argv);
  if (options.uid >= 0) {
    const auto id = static_cast<uid_t>(options.uid);
    if (setgroups(0, nullptr) != 0 || setgid(id) != 0 || setuid(id) != 0) {
      std::cerr << "cannot become user " << options.uid << std::endl;
      return 2;
    }
  }
  FloodTally tally(options.messages);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&options, &tally, i] {
      Attack(options, options.seed * 1000 + static_cast<uint64_t>(i), &tally);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  nlohmann::json document = {{"messages", options.messages}, {"seconds", seconds.count()}};
  for (const auto& [what, count] : tally.counts()) document["counts"][what] = count;
  const bool there = StillThere(options.address);
  document["daemon_is_there"] = there;
  std::cout << document.dump() << std::endl;
  return there ? 0 : 1;
}

}  // namespace
}  // namespace feedwater::testing

int main(int argc, char** argv) { return feedwater::testing::Main(argc, argv); }
