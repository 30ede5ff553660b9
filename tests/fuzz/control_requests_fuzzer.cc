// Any bytes as requests to a running daemon's control socket, over gRPC as clients send them, with
// the ticket of a live data connection put in where a request has room for one: every call is
// answered, and the daemon goes on serving.
//
//   input: {method, 2 bytes of length, the request's bytes} ...
// LIBS: feedwater_testing
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "feedwater/v1/control.pb.h"
#include "server/daemon.h"
#include "server/service/config.h"
#include "server/service/cursor.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/fake_trainer.h"
#include "tests/testing/test_images.h"

namespace feedwater::fuzz {
namespace {

using testing::FakeTrainer;

constexpr int kMaxCalls = 4;
constexpr auto kDeadline = std::chrono::seconds(15);
constexpr const char kPipeline[] =
    "version: 1\ndataset: {format: image_folder, root: photos}\nsampler: {shuffle: full, seed: "
    "42}\n"
    "graph:\n- decode: {in: data, out: image}\n- resize: {in: image, size: [8, 8]}\n"
    "batch: {size: 2}\noutputs: [image, label]\n";

const google::protobuf::ServiceDescriptor& Service() {
  return *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "feedwater.v1.Control");
}

// Whether the bytes are a request of that method. gRPC answers others by itself.
bool IsRequest(int method, const std::string& bytes) {
  const auto* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(
      Service().method(method)->input_type());
  const std::unique_ptr<google::protobuf::Message> request(prototype->New());
  return request->ParseFromString(bytes);
}

class RunningDaemon {
 public:
  RunningDaemon() {
    testing::WriteImageFolder(folder_ / "photos", 2, 3);
    folder_.Write("pipelines/photos.yaml", kPipeline);
    auto settings = server::ParseSettings(
        "version: 1\nruntime_dir: run\nstate_dir: state\npipelines: [pipelines]\n"
        "roots: {photos: photos}\ncpus: 1\npin_cpus: false\nmemory: 128MiB\n"
        "limits: {max_slot: 1MiB}\nstorage: {engine: pread}\n",
        folder_ / "feedwater.yaml", {});
    Require(settings.ok(), settings.status().ToString());
    auto daemon = server::Daemon::Start(*std::move(settings));
    Require(daemon.ok(), daemon.status().ToString());
    daemon_ = *std::move(daemon);
    auto channel = grpc::CreateChannel("unix:" + (folder_ / "run/control.sock"),
                                       grpc::InsecureChannelCredentials());
    stub_ = std::make_unique<grpc::GenericStub>(channel);
  }

  grpc::Status Call(const std::string& method, const std::string& request) {
    const grpc::Slice slice(request);
    const grpc::ByteBuffer sent(&slice, 1);
    grpc::ByteBuffer received;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    std::mutex mu;
    std::condition_variable answered;
    bool done = false;
    grpc::Status status;
    stub_->UnaryCall(&context, method, grpc::StubOptions(), &sent, &received, [&](grpc::Status s) {
      std::lock_guard<std::mutex> lock(mu);
      status = std::move(s);
      done = true;
      answered.notify_one();
    });
    std::unique_lock<std::mutex> lock(mu);
    answered.wait(lock, [&] { return done; });
    return status;
  }

  std::string data_socket() const { return folder_ / "run/data.sock"; }

 private:
  server::TempFolder folder_;
  std::unique_ptr<server::Daemon> daemon_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

// The request with the ticket, where it is one that has a ticket.
std::string WithTicket(int method, const std::string& bytes, const std::string& ticket) {
  const auto with = [&](auto request) {
    if (!request.ParseFromString(bytes)) return bytes;
    request.set_ticket(ticket);
    return request.SerializeAsString();
  };
  if (Service().method(method)->name() == "OpenStream") return with(v1::OpenStreamRequest());
  if (Service().method(method)->name() == "CloseStream") return with(v1::CloseStreamRequest());
  return bytes;
}

// The daemon's own answer to a ticket that belongs to no connection.
bool IsWithoutConnection(const grpc::Status& status) {
  return status.error_message().find("ticket") != std::string::npos;
}

void Run(Input input) {
  static auto* daemon = new std::unique_ptr<RunningDaemon>(new RunningDaemon);
  static const bool registered = std::atexit([] { daemon->reset(); }) == 0;
  (void)registered;
  Reader reader(input);
  FakeTrainer trainer((*daemon)->data_socket());
  const auto hello = trainer.Hello();
  Require(hello.has_value(), "the daemon says WELCOME");
  const std::string ticket(hello->begin(), hello->end());
  for (int i = 0; i < kMaxCalls && !reader.empty(); ++i) {
    const uint8_t which = reader.Byte();
    const int method = which % Service().method_count();
    std::string bytes = AsText(reader.Bytes(reader.Number(2)));
    if (which < 128) bytes = WithTicket(method, bytes, ticket);
    const grpc::Status status =
        (*daemon)->Call("/feedwater.v1.Control/" + Service().method(method)->name(), bytes);
    Require(status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED, "every call is answered");
    Require(status.error_code() != grpc::StatusCode::UNAVAILABLE || IsWithoutConnection(status),
            "the daemon goes on serving");
    const bool internal = status.error_code() == grpc::StatusCode::INTERNAL;
    Require(internal == !IsRequest(method, bytes), "no request ends in an internal error");
    Require(status.ok() || internal || !status.error_message().empty(), "an error has words");
  }
}

std::string Step(const std::string& method, const std::string& request) {
  const int number = Service().FindMethodByName(method)->index();
  return std::string{static_cast<char>(number), static_cast<char>(request.size()),
                     static_cast<char>(request.size() >> 8)} +
         request;
}

std::vector<std::string> Seeds() {
  v1::OpenStreamRequest open;
  open.mutable_pipeline()->set_name("photos");
  open.set_job("job");
  open.set_client("fuzz");
  open.set_world_size(2);
  open.set_rank(1);
  std::vector<std::string> seeds;
  for (int i = 0; i < Service().method_count(); ++i)  // requests without a field
    seeds.push_back(Step(Service().method(i)->name(), ""));
  const std::string opened = Step("OpenStream", open.SerializeAsString());
  seeds.push_back(opened);
  seeds.push_back(opened + Step("GetStatus", "") +
                  Step("CloseStream", v1::CloseStreamRequest().SerializeAsString()));
  open.set_world_size(1);
  open.set_rank(0);
  open.set_batch_size(3);
  open.set_seed(7);
  open.set_slots(2);
  open.set_epoch(5);
  open.set_checksum(true);
  open.mutable_pipeline()->mutable_text()->set_file_name("mine.yaml");
  open.mutable_pipeline()->mutable_text()->set_yaml(kPipeline);
  seeds.push_back(Step("OpenStream", open.SerializeAsString()));
  server::Cursor cursor;
  cursor.dataset = cursor.pipeline = std::string(32, '0');
  open.set_cursor(server::FormatCursor(cursor));
  seeds.push_back(Step("OpenStream", open.SerializeAsString()));
  v1::DescribePipelineRequest describe;
  *describe.mutable_pipeline() = open.pipeline();
  seeds.push_back(Step("DescribePipeline", describe.SerializeAsString()));
  describe.mutable_pipeline()->set_name("photos");
  seeds.push_back(Step("DescribePipeline", describe.SerializeAsString()));
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 4096};
  return target;
}

}  // namespace feedwater::fuzz
