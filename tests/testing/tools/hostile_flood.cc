// hostile_flood ADDRESS: sends a live daemon what no client should, on both sockets, from a seed.
//
// Structure-aware: most conversations begin rightly, with HELLO and OpenStream, and then take wrong
// turns, because what is wrong from its first byte gets no further than the first check. A message
// is a packet on data.sock, a call or a piece of noise on control.sock. The daemon must answer each
// with an error or by hanging up; what matters is what happens to everybody else, which the caller
// watches. Prints one JSON document. Exit status: 0 the daemon was there to the end, 1 it was not.
#include <fcntl.h>
#include <grp.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "feedwater/v1/control.grpc.pb.h"
#include "proto/shm/wire.h"
#include "tests/testing/fake_trainer.h"

namespace feedwater::testing {
namespace {

constexpr auto kCallTime = std::chrono::seconds(20);
constexpr int kMostFloodMessages = 4000;
constexpr size_t kTicketBytes = 16;

struct Options {
  std::string address;
  std::string pipeline = "photos";
  int64_t messages = 100'000;
  uint64_t seed = 1;
  int threads = 1;
  int64_t uid = -1;
};

// What all threads count, and the tickets that they show each other: a ticket of somebody else is
// as wrong as a random one, and harder to refuse.
class Shared {
 public:
  explicit Shared(int64_t messages) : left_(messages) {}

  bool Take() { return left_.fetch_sub(1) > 0; }  // one message more may be sent
  bool done() const { return left_.load() <= 0; }
  void Count(const std::string& what) {
    std::lock_guard<std::mutex> lock(mu_);
    ++counts_[what];
  }
  void Show(const std::string& ticket) {
    std::lock_guard<std::mutex> lock(mu_);
    shown_ = ticket;
  }
  std::string shown() {
    std::lock_guard<std::mutex> lock(mu_);
    return shown_;
  }
  std::map<std::string, uint64_t> counts() {
    std::lock_guard<std::mutex> lock(mu_);
    return counts_;
  }

 private:
  std::atomic<int64_t> left_;
  std::mutex mu_;
  std::map<std::string, uint64_t> counts_;
  std::string shown_;
};

class Attacker {
 public:
  Attacker(const Options& options, uint64_t seed, Shared* shared)
      : options_(options), shared_(*shared), random_(seed) {
    Connect();
  }

  void Run() {
    while (!shared_.done()) {
      shared_.Count("conversations");
      switch (Below(16)) {
        case 0:
          Strangers();
          break;
        case 1:
          WrongCall();
          break;
        case 2:
          RawCall();
          break;
        case 3:
          ControlNoise();
          break;
        case 4:
          HalfOpen();
          break;
        case 5:
        case 6:
          Flood();
          break;
        default:
          Session();
      }
      if (Below(256) == 0) Connect();
    }
  }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }

  std::string Noise(size_t most) {
    std::string noise(Below(most + 1), '\0');
    for (char& byte : noise) byte = static_cast<char>(random_());
    return noise;
  }

  // A number that is a boundary more often than not.
  int64_t Number() {
    constexpr int64_t kEdges[] = {0,  1,         -1,        2,         63,        64,
                                  65, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20};
    if (Below(3) != 0) return kEdges[Below(std::size(kEdges))];
    return static_cast<int64_t>(random_() >> Below(64));
  }

  void Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel("unix:" + options_.address + "/control.sock",
                                                   grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::Control::NewStub(channel);
    raw_ = std::make_unique<grpc::GenericStub>(channel);
  }

  FakeTrainer Dial() {
    FakeTrainer trainer(options_.address + "/data.sock");
    if (!trainer.connected()) shared_.Count("not_connected");
    return trainer;
  }

  // Sends one packet; false when the conversation or the message budget is over.
  bool Say(FakeTrainer* trainer, const void* bytes, size_t size) {
    return shared_.Take() && trainer->SendBytes(bytes, size);
  }
  template <typename M>
  bool Say(FakeTrainer* trainer, const M& message) {
    return Say(trainer, &message, sizeof(message));
  }

  static wire::Hello GoodHello() {
    wire::Hello hello{};
    hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
    hello.magic = wire::kMagic;
    hello.major = wire::kMajor;
    hello.minor = wire::kMinor;
    return hello;
  }
  static wire::Release MakeRelease(uint32_t slot, uint64_t generation) {
    wire::Release release{};
    release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
    release.slot = slot;
    release.generation = generation;
    return release;
  }
  static wire::Seek MakeSeek(uint32_t serial, uint64_t epoch, int64_t position) {
    wire::Seek seek{};
    seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
    seek.serial = serial;
    seek.epoch = epoch;
    seek.position = position;
    return seek;
  }

  // A right message with some of its bits turned, or of another length.
  template <typename M>
  bool SayMutated(FakeTrainer* trainer, const M& message) {
    std::string bytes(reinterpret_cast<const char*>(&message), sizeof(message));
    switch (Below(4)) {
      case 0:
        bytes.resize(Below(2 * sizeof(message) + 1));
        break;
      case 1:
        bytes += Noise(1 << Below(17));
        break;
      default:
        for (uint64_t i = 0; i <= Below(4); ++i)
          bytes[Below(bytes.size())] ^= static_cast<char>(1 << Below(8));
    }
    return Say(trainer, bytes.data(), bytes.size());
  }

  std::string Greet(FakeTrainer* trainer) {
    if (!shared_.Take()) return {};
    const auto ticket = trainer->Hello();
    return ticket ? std::string(ticket->begin(), ticket->end()) : std::string();
  }

  // --- conversations ---

  void Strangers() {  // nothing right from the beginning
    FakeTrainer trainer = Dial();
    for (uint64_t i = 0; i <= Below(4) && trainer.connected(); ++i) {
      if (Below(2) == 0) {
        const std::string noise = Noise(1 << Below(16));
        if (!Say(&trainer, noise.data(), noise.size())) return;
      } else if (!SayMutated(&trainer, GoodHello())) {
        return;
      }
    }
  }

  void HalfOpen() {  // says hello and is left lying about, up to a handful at a time
    FakeTrainer trainer = Dial();
    if (!trainer.connected()) return;
    const std::string ticket = Greet(&trainer);
    if (ticket.empty()) return;
    shared_.Show(ticket);
    if (Below(2) == 0 && !Say(&trainer, GoodHello())) return;
    if (Below(2) == 0 && !Say(&trainer, MakeRelease(0, 1))) return;
    waiting_.push_back(std::move(trainer));
    if (waiting_.size() > 8) waiting_.clear();
  }

  std::optional<FakeTrainer> OpenSession() {
    FakeTrainer trainer = Dial();
    if (!trainer.connected()) return std::nullopt;
    const std::string ticket = Greet(&trainer);
    if (ticket.empty()) return std::nullopt;
    shared_.Show(ticket);
    v1::OpenStreamRequest request;
    request.set_ticket(ticket);
    request.set_client("flood");
    request.mutable_pipeline()->set_name(options_.pipeline);
    request.set_job("flood-" + std::to_string(Below(1u << 31)));
    request.set_world_size(1);
    request.set_slots(static_cast<uint32_t>(1 + Below(4)));
    if (!CallOpen(request) || !trainer.ReceiveArena()) return std::nullopt;
    shared_.Count("sessions");
    return trainer;
  }

  void Session() {
    std::optional<FakeTrainer> trainer = OpenSession();
    if (!trainer) return;
    uint32_t serial = 0;
    std::vector<wire::Ready> lent;
    for (bool alive = true; alive && !shared_.done();) {
      while (trainer->HasInput(Below(8) == 0 ? 2 : 0)) {
        const auto packet = trainer->Receive();
        if (!packet || packet->Is(wire::Type::kClosing)) {
          shared_.Count(packet ? "closed_with_a_reason" : "closed");
          return;
        }
        if (packet->Is(wire::Type::kReady)) lent.push_back(packet->As<wire::Ready>());
      }
      const uint32_t slot = static_cast<uint32_t>(Below(6));
      switch (Below(48)) {
        case 0: {
          const std::string noise = Noise(900);
          alive = Say(&*trainer, noise.data(), noise.size());
          break;
        }
        case 1:
          alive = Say(&*trainer, MakeRelease(slot, Below(16)));
          break;
        case 2:
          alive = Say(&*trainer, MakeRelease(static_cast<uint32_t>(Number()),
                                             static_cast<uint64_t>(Number())));
          break;
        case 3:
          alive = SayMutated(&*trainer, MakeRelease(slot, 1));
          break;
        case 4:
          alive = SayMutated(&*trainer, MakeSeek(serial + 1, 0, 0));
          break;
        case 5:
          alive = Say(&*trainer, MakeSeek(static_cast<uint32_t>(Number()),
                                          static_cast<uint64_t>(Number()), Number()));
          break;
        case 6:
          alive = Say(&*trainer, GoodHello());
          break;
        case 7: {
          const std::vector<int> descriptors(1 + Below(250), 0);
          const wire::Seek seek = MakeSeek(serial + 1, 0, 0);
          if (shared_.Take()) trainer->SendBytes(&seek, sizeof(seek), descriptors);
          break;
        }
        case 8:
          return;  // hangs up with whatever it holds
        case 9:
          CallClose(shared_.shown());
          break;
        case 10:
        case 11:
        case 12:
        case 13:
          alive = Say(&*trainer, MakeSeek(++serial, Below(5), static_cast<int64_t>(Below(64))));
          lent.clear();  // kept for ever
          break;
        default:
          if (lent.empty()) {
            alive = Say(&*trainer, MakeSeek(++serial, Below(5), 0));
            break;
          }
          alive = Say(&*trainer, MakeRelease(lent.back().slot, lent.back().generation));
          lent.pop_back();
      }
    }
  }

  void Flood() {  // nothing but right messages, as fast as they go
    std::optional<FakeTrainer> trainer = OpenSession();
    if (!trainer) return;
    const uint64_t messages = Below(kMostFloodMessages);
    for (uint32_t serial = 1; serial <= messages; ++serial) {
      if (!Say(&*trainer, MakeSeek(serial, Below(1u << 30), static_cast<int64_t>(Below(1000)))))
        return;
      if (serial % 64 != 0) continue;
      while (trainer->HasInput(0)) {
        const auto packet = trainer->Receive();
        if (!packet || packet->Is(wire::Type::kClosing)) return;
      }
    }
  }

  // --- calls ---

  void Note(const grpc::Status& status) {
    shared_.Count(status.ok() ? "calls_ok" : "calls_refused");
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) shared_.Count("calls_unavailable");
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) shared_.Count("calls_hung");
  }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + kCallTime);
  }

  bool CallOpen(const v1::OpenStreamRequest& request) {
    if (!shared_.Take()) return false;
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::OpenStreamResponse response;
    const grpc::Status status = stub_->OpenStream(&context, request, &response);
    Note(status);
    return status.ok();
  }

  void CallClose(const std::string& ticket) {
    if (!shared_.Take()) return;
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::CloseStreamRequest request;
    request.set_ticket(ticket);
    v1::CloseStreamResponse response;
    Note(stub_->CloseStream(&context, request, &response));
  }

  std::string Ticket() {
    switch (Below(4)) {
      case 0:
        return Noise(40);
      case 1:
        return std::string(kTicketBytes, '\0');
      case 2: {
        std::string ticket = shared_.shown();
        if (!ticket.empty()) ticket[Below(ticket.size())] ^= static_cast<char>(1 << Below(8));
        return ticket;
      }
      default:
        return shared_.shown();  // of somebody else, or of a connection that is gone
    }
  }

  v1::OpenStreamRequest WrongRequest() {
    v1::OpenStreamRequest request;
    request.set_ticket(Ticket());
    request.set_client("flood");
    request.mutable_pipeline()->set_name(options_.pipeline);
    request.set_world_size(1);
    for (uint64_t i = 0; i <= Below(3); ++i) {
      switch (Below(10)) {
        case 0:
          request.set_rank(Number());
          break;
        case 1:
          request.set_world_size(Number());
          break;
        case 2:
          request.set_batch_size(Number());
          break;
        case 3:
          request.set_slots(static_cast<uint32_t>(Number()));
          break;
        case 4:
          request.set_seed(static_cast<uint64_t>(Number()));
          break;
        case 5:
          request.set_epoch(static_cast<uint64_t>(Number()));
          break;
        case 6:
          request.set_cursor(Below(2) == 0 ? std::string(Below(3000), '{')
                                           : R"({"version": 1, "epoch": 1e999, "position": -1})");
          break;
        case 7:
          request.mutable_pipeline()->mutable_text()->set_yaml(std::string(Below(70'000), '['));
          break;
        case 8:
          request.mutable_pipeline()->set_name("../../etc/passwd");
          break;
        default:
          request.set_job(std::string(Below(600), 'j'));
      }
    }
    return request;
  }

  void WrongCall() {
    for (int i = 0; i < 4; ++i) {
      switch (Below(3)) {
        case 0:
          CallClose(Ticket());
          break;
        case 1: {
          if (!shared_.Take()) return;
          grpc::ClientContext context;
          SetDeadline(&context);
          v1::DescribePipelineRequest request;
          *request.mutable_pipeline() = WrongRequest().pipeline();
          v1::DescribePipelineResponse response;
          Note(stub_->DescribePipeline(&context, request, &response));
          break;
        }
        default:
          CallOpen(WrongRequest());
      }
    }
  }

  // Any method with any bytes: noise, or a request with some of its bits turned.
  void RawCall() {
    const auto* service = v1::OpenStreamRequest::descriptor()->file()->service(0);
    std::string bytes = Below(2) == 0 ? Noise(300) : WrongRequest().SerializeAsString();
    if (!bytes.empty()) bytes[Below(bytes.size())] ^= static_cast<char>(1 << Below(8));
    const std::string method =
        Below(8) == 0 ? std::string("NoSuchMethod")
                      : service->method(static_cast<int>(Below(service->method_count())))->name();
    if (!shared_.Take()) return;
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::CompletionQueue queue;
    auto call = raw_->PrepareUnaryCall(
        &context, "/" + std::string(service->full_name()) + "/" + method, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    Note(status);
  }

  void ControlNoise() {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = options_.address + "/control.sock";
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        shared_.Take()) {
      std::string bytes = Below(2) == 0 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
      bytes += Noise(2000);
      (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    close(fd);
  }

  const Options& options_;
  Shared& shared_;
  std::mt19937_64 random_;
  std::unique_ptr<v1::Control::Stub> stub_;
  std::unique_ptr<grpc::GenericStub> raw_;
  std::vector<FakeTrainer> waiting_;
};

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
  Options options;
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
  Shared shared(options.messages);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&options, &shared, i] {
      Attacker(options, options.seed * 1000 + static_cast<uint64_t>(i), &shared).Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  nlohmann::json document = {{"messages", options.messages}, {"seconds", seconds.count()}};
  for (const auto& [what, count] : shared.counts()) document["counts"][what] = count;
  const bool there = StillThere(options.address);
  document["daemon_is_there"] = there;
  std::cout << document.dump() << std::endl;
  return there ? 0 : 1;
}

}  // namespace
}  // namespace feedwater::testing

int main(int argc, char** argv) { return feedwater::testing::Main(argc, argv); }
