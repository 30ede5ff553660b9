// A whole daemon in this process, in a folder of its own, with small datasets; and a client that
// speaks gRPC and the raw data protocol to it.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "feedwater/v1/control.grpc.pb.h"
#include "server/daemon.h"
#include "server/service/config.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_trainer.h"
#include "tests/testing/test_images.h"

namespace feedwater::server {

using testing::Eventually;
using testing::FakeTrainer;

inline void WriteFile(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// 24 images of 2 classes at photos/good, 32x32 pixels when delivered.
inline std::string PhotosPipeline(const std::string& more = "", const std::string& path = "good") {
  return absl::StrCat("version: 1\ndataset: {format: image_folder, root: photos, path: ", path,
                      "}\n"
                      "sampler: {shuffle: full, seed: 42}\n"
                      "graph:\n"
                      "  - decode: {in: data, out: image}\n"
                      "  - resize: {in: image, size: [32, 32]}\n"
                      "outputs: [image, label, sample_id]\n",
                      more);
}

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    char folder[] = "/tmp/feedwater-daemon-XXXXXX";
    folder_ = mkdtemp(folder);
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
    testing::WriteImageFolder(folder_ + "/photos/good", 2, 12);
    WritePipeline("photos", PhotosPipeline("batch: {size: 4}\n"));
    WritePipeline("sizeless", PhotosPipeline());
  }
  ~DaemonTest() override {
    daemon_.reset();
    std::filesystem::remove_all(folder_);
  }

  void WritePipeline(const std::string& name, const std::string& text) {
    WriteFile(folder_ + "/pipelines/" + name + ".yaml", text);
  }
  std::string address() const { return folder_ + "/run"; }
  std::string file() const { return folder_ + "/feedwater.yaml"; }

  absl::StatusOr<Settings> Configure(const std::vector<std::string>& overrides = {}) const {
    return ParseSettings(
        "version: 1\nruntime_dir: run\nstate_dir: state\npipelines: [pipelines]\nroots: {photos: "
        "photos}\n"
        "cpus: 2\npin_cpus: false\nmemory: 512MiB\n",
        file(), overrides);
  }
  void Start(const std::vector<std::string>& overrides = {}) {
    auto settings = Configure(overrides);
    ASSERT_TRUE(settings.ok()) << settings.status();
    auto daemon = Daemon::Start(*std::move(settings));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    stub_ = Stub();
  }

  std::unique_ptr<v1::Control::Stub> Stub() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    return v1::Control::NewStub(grpc::CreateCustomChannel(
        "unix:" + address() + "/control.sock", grpc::InsecureChannelCredentials(), arguments));
  }

  // --- a client ---
  struct Client {
    FakeTrainer trainer;
    std::string ticket;
    v1::OpenStreamResponse opened;
  };
  Client Connect() const {
    Client client{FakeTrainer(address() + "/data.sock"), {}, {}};
    if (auto ticket = client.trainer.Hello()) client.ticket.assign(ticket->begin(), ticket->end());
    EXPECT_EQ(client.ticket.size(), 16u);
    return client;
  }
  v1::OpenStreamRequest Request(const std::string& pipeline = "photos") const {
    v1::OpenStreamRequest request;
    request.mutable_pipeline()->set_name(pipeline);
    request.set_job("job");
    request.set_world_size(1);
    request.set_client("test");
    return request;
  }
  grpc::Status Open(Client* client, v1::OpenStreamRequest request) const {
    if (request.ticket().empty()) request.set_ticket(client->ticket);
    grpc::ClientContext context;
    return stub_->OpenStream(&context, request, &client->opened);
  }
  v1::GetStatusResponse Status() const {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    grpc::Status status = stub_->GetStatus(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // The code and words of a refused open, with a connection of its own.
  void ExpectRefused(const v1::OpenStreamRequest& request, grpc::StatusCode code,
                     const std::string& words) const {
    Client client = Connect();
    grpc::Status status = Open(&client, request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(words)) << request.ShortDebugString();
  }

  std::string folder_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::Control::Stub> stub_;
};

}  // namespace feedwater::server
