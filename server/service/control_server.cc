#include "server/service/control_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "server/base/counters.h"
#include "server/base/escape.h"
#include "server/base/log_limiter.h"

namespace feedwater::server {
namespace {

constexpr int kMaxThreads = 1024;  // handlers wait for datasets to open; each waiting rank has one
constexpr int kMaxStreamsPerConnection = 128;
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Create(
    ControlListener::Options listener, ControlGate::Options gate, ControlService* service,
    Answers* answers, size_t max_request_bytes) {
  static const bool plugins = [] {  // for all servers of the process, before the first one is built
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Protobuf writes a line to stderr for each text of a request that is not UTF-8: any client
    // could fill the log. The client is told.
    google::protobuf::SetLogHandler(nullptr);
    gpr_set_log_function([](gpr_log_func_args* line) {  // of what clients do, mostly
      if (ClientLog().Admits("gRPC", LogLimiter::kNoSource))
        spdlog::warn("gRPC: {} ({}:{})", Escaped(line->message), line->file, line->line);
    });
    // Held for good: gRPC's own end waits up to ten seconds for the poller of a write that its
    // client never read.
    grpc_init();
    return true;
  }();
  (void)plugins;

  std::unique_ptr<ControlServer> server(new ControlServer);
  grpc::ResourceQuota quota("control");
  quota.SetMaxThreads(kMaxThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(max_request_bytes));
  // A message of 100 KB may inflate to 100 MB before its size is looked at: compressed ones are not
  // even read.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
  builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 10000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(gate.limits.handshake_seconds * 1000));
  // Windows and frames stay as small as they start: requests are small, and what is on its way
  // belongs to nobody's account.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(answers->Factory());
  builder.experimental().SetInterceptorCreators(std::move(factories));
  builder.RegisterService(service);
  server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr)
    return absl::InternalError("gRPC could not start the control server");
  server->server_->GetHealthCheckService()->SetServingStatus(false);

  gate.access = listener.access;
  gate.serve = [acceptor = server->acceptor_.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  FW_ASSIGN_OR_RETURN(server->gate_, ControlGate::Create(std::move(gate)));
  listener.admit = [gate = server->gate_.get()](Fd connection, const PeerIdentity& peer,
                                                uid_t account) {
    return gate->Admit(std::move(connection), peer, account);
  };
  FW_ASSIGN_OR_RETURN(server->listener_, ControlListener::Create(std::move(listener)));
  return server;
}

absl::Status ControlServer::Start() {
  auto* health = server_->GetHealthCheckService();
  health->SetServingStatus(true);
  health->SetServingStatus(v1::Control::service_full_name(), true);
  FW_RETURN_IF_ERROR(gate_->Start());
  return listener_->Start();
}

void ControlServer::Refuse() {
  if (server_ != nullptr) server_->GetHealthCheckService()->SetServingStatus(false);
  if (listener_ != nullptr) listener_->Stop();
}

void ControlServer::Stop() {
  Refuse();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  server_->Wait();
  if (gate_ != nullptr) gate_->Stop();  // it may be what could not be made
  server_.reset();
}

std::map<std::string, uint64_t> ControlServer::counters() const {
  Counters counters = gate_->counters();
  AddCounters(listener_->counters(), &counters);
  return counters;
}

}  // namespace feedwater::server
