#include "tests/testing/flood/control_attacks.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>

namespace feedwater::testing {
namespace {

constexpr size_t kTicketBytes = 16;

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kCallTime);
}

}  // namespace

ControlAttacks::ControlAttacks(const FloodOptions& options, Dice* dice, FloodTally* tally)
    : options_(options), dice_(*dice), tally_(*tally) {
  Connect();
}

void ControlAttacks::Connect() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel("unix:" + options_.address + "/control.sock",
                                                 grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::Control::NewStub(channel);
  raw_ = std::make_unique<grpc::GenericStub>(channel);
}

bool ControlAttacks::Open(const v1::OpenStreamRequest& request) {
  if (!tally_.Take()) return false;
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::OpenStreamResponse response;
  const grpc::Status status = stub_->OpenStream(&context, request, &response);
  Note(status);
  return status.ok();
}

void ControlAttacks::Close(const std::string& ticket) {
  if (!tally_.Take()) return;
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::CloseStreamRequest request;
  request.set_ticket(ticket);
  v1::CloseStreamResponse response;
  Note(stub_->CloseStream(&context, request, &response));
}

void ControlAttacks::WrongCalls() {
  for (int i = 0; i < 4; ++i) {
    switch (dice_.Below(3)) {
      case 0:
        Close(Ticket());
        break;
      case 1: {
        if (!tally_.Take()) return;
        grpc::ClientContext context;
        SetDeadline(&context);
        v1::DescribePipelineRequest request;
        *request.mutable_pipeline() = WrongRequest().pipeline();
        v1::DescribePipelineResponse response;
        Note(stub_->DescribePipeline(&context, request, &response));
        break;
      }
      default:
        Open(WrongRequest());
    }
  }
}

void ControlAttacks::RawCall() {
  const auto* service = v1::OpenStreamRequest::descriptor()->file()->service(0);
  std::string bytes = dice_.Below(2) == 0 ? dice_.Noise(300) : WrongRequest().SerializeAsString();
  if (!bytes.empty()) bytes[dice_.Below(bytes.size())] ^= static_cast<char>(1 << dice_.Below(8));
  const std::string method =
      dice_.Below(8) == 0
          ? std::string("NoSuchMethod")
          : service->method(static_cast<int>(dice_.Below(service->method_count())))->name();
  if (!tally_.Take()) return;
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

void ControlAttacks::Noise() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = options_.address + "/control.sock";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      tally_.Take()) {
    std::string bytes = dice_.Below(2) == 0 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    bytes += dice_.Noise(2000);
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  close(fd);
}

void ControlAttacks::Note(const grpc::Status& status) {
  tally_.Count(status.ok() ? "calls_ok" : "calls_refused");
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) tally_.Count("calls_unavailable");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) tally_.Count("calls_hung");
}

std::string ControlAttacks::Ticket() {
  switch (dice_.Below(4)) {
    case 0:
      return dice_.Noise(40);
    case 1:
      return std::string(kTicketBytes, '\0');
    case 2: {
      std::string ticket = tally_.shown();
      if (!ticket.empty())
        ticket[dice_.Below(ticket.size())] ^= static_cast<char>(1 << dice_.Below(8));
      return ticket;
    }
    default:
      return tally_.shown();  // of somebody else, or of a connection that is gone
  }
}

v1::OpenStreamRequest ControlAttacks::WrongRequest() {
  v1::OpenStreamRequest request;
  request.set_ticket(Ticket());
  request.set_client("flood");
  request.mutable_pipeline()->set_name(options_.pipeline);
  request.set_world_size(1);
  for (uint64_t i = 0; i <= dice_.Below(3); ++i) {
    switch (dice_.Below(10)) {
      case 0:
        request.set_rank(dice_.Number());
        break;
      case 1:
        request.set_world_size(dice_.Number());
        break;
      case 2:
        request.set_batch_size(dice_.Number());
        break;
      case 3:
        request.set_slots(static_cast<uint32_t>(dice_.Number()));
        break;
      case 4:
        request.set_seed(static_cast<uint64_t>(dice_.Number()));
        break;
      case 5:
        request.set_epoch(static_cast<uint64_t>(dice_.Number()));
        break;
      case 6:
        request.set_cursor(dice_.Below(2) == 0
                               ? std::string(dice_.Below(3000), '{')
                               : R"({"version": 1, "epoch": 1e999, "position": -1})");
        break;
      case 7:
        request.mutable_pipeline()->mutable_text()->set_yaml(std::string(dice_.Below(70'000), '['));
        break;
      case 8:
        request.mutable_pipeline()->set_name("../../etc/passwd");
        break;
      default:
        request.set_job(std::string(dice_.Below(600), 'j'));
    }
  }
  return request;
}

}  // namespace feedwater::testing
