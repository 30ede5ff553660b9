#include "feedwater/client.h"

#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/address.h"
#include "client/cpp/control_channel.h"
#include "client/cpp/session.h"
#include "client/cpp/stream_impl.h"

namespace feedwater {
namespace {

constexpr int64_t kAppearsNs = 3'000'000'000;   // a daemon that is being started, until it listens
constexpr int64_t kStartingNs = 5'000'000'000;  // a daemon that is starting or stopping

}  // namespace

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kBool:
      return "bool";
    case DType::kInt16:
      return "int16";
    case DType::kUInt16:
      return "uint16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
  }
  return "unknown";
}

size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

struct Client::Impl {
  std::string address;
  std::unique_ptr<v1::Control::Stub> control;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;
const std::string& Client::address() const { return impl_->address; }

absl::StatusOr<Client> Client::Connect(absl::string_view address) {
  // A session that is dropped at once: it shows whether somebody serves, lets us in and speaks our
  // protocol. A daemon may be starting: not listening yet, or greeting and not serving yet.
  absl::StatusOr<std::string> folder;
  bool greeted = false;
  for (const int64_t began = MonotonicNs();;) {
    folder = FindAddress(address);
    const absl::Status seen =
        folder.ok() ? Session::Connect(*folder, &greeted).status() : folder.status();
    if (seen.ok()) break;
    const int64_t patience = greeted ? kStartingNs : kAppearsNs;
    if (!absl::IsUnavailable(seen) || MonotonicNs() - began >= patience) return seen;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  auto impl = std::make_unique<Impl>();
  impl->address = *folder;
  impl->control = ConnectControl(*folder);
  return Client(std::move(impl));
}

absl::StatusOr<Stream> Client::Open(const StreamOptions& options) {
  absl::StatusOr<std::unique_ptr<Stream::Impl>> stream =
      Stream::Impl::Open(impl_->address, options);
  if (!stream.ok()) return stream.status();
  return Stream(*std::move(stream));
}

absl::StatusOr<std::vector<std::string>> Client::Pipelines() {
  grpc::ClientContext context;
  v1::ListPipelinesResponse response;
  const grpc::Status status = impl_->control->ListPipelines(&context, {}, &response);
  if (!status.ok()) return ExplainNoAnswer(FromGrpc(status), impl_->address);
  return std::vector<std::string>(response.names().begin(), response.names().end());
}

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace feedwater
