// A whole daemon over real sockets: every RPC, and the life of streams and of the daemon.
#include "server/daemon.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "feedwater/version.h"
#include "server/service/cursor.h"
#include "tests/service/daemon_fixture.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- what an honest client sees

TEST_F(DaemonTest, OneEpochComesThroughSharedMemoryWithEachRecordOnce) {
  Start();
  Client client = Connect();
  grpc::Status status = Open(&client, Request());
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(client.opened.job(), "job");
  EXPECT_EQ(client.opened.pipeline(), "photos");
  EXPECT_EQ(client.opened.records(), 24);
  EXPECT_EQ(client.opened.batch_size(), 4);
  EXPECT_EQ(client.opened.steps_per_epoch(), 6);
  EXPECT_EQ(client.opened.samples_per_epoch(), 24);
  EXPECT_EQ(client.opened.seed(), 42u);
  EXPECT_EQ(client.opened.daemon_version(), kFeedwaterVersion);
  EXPECT_EQ(client.opened.dataset_digest().size(), 32u);
  EXPECT_EQ(client.opened.pipeline_digest().size(), 32u);
  EXPECT_GE(client.opened.slots(), 2u);
  ASSERT_EQ(client.opened.fields_size(), 3);
  EXPECT_EQ(client.opened.fields(0).name(), "image");
  EXPECT_EQ(client.opened.fields(0).dtype(), v1::DTYPE_UINT8);
  EXPECT_THAT(client.opened.fields(0).shape(), ElementsAre(32, 32, 3));
  EXPECT_EQ(client.opened.fields(0).layout(), "HWC");
  EXPECT_THAT(client.opened.classes(), ElementsAre("c0", "c1"));

  ASSERT_TRUE(client.trainer.ReceiveArena());
  EXPECT_EQ(client.trainer.arena().slots, client.opened.slots());
  EXPECT_EQ(client.trainer.arena().slot_bytes, client.opened.slot_bytes());
  std::set<int64_t> seen;
  for (int step = 0; step < 6; ++step) {
    auto ready = client.trainer.Next();
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->step, step);
    EXPECT_EQ(ready->samples, 4u);
    const auto* ids = reinterpret_cast<const int64_t*>(client.trainer.slot(ready->slot) +
                                                       client.opened.fields(2).offset());
    seen.insert(ids, ids + 4);
    EXPECT_TRUE(client.trainer.Release(*ready));
  }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 23);
}

TEST_F(DaemonTest, ListsAndDescribesItsPipelines) {
  WritePipeline("broken",
                "version: 1\ndataset: {format: image_folder, root: photos, path: good}\ngraph:\n  "
                "- resise: {}\noutputs: [data]\n");
  Start();
  grpc::ClientContext list_context;
  v1::ListPipelinesResponse list;
  ASSERT_TRUE(stub_->ListPipelines(&list_context, {}, &list).ok());
  EXPECT_THAT(list.names(), ElementsAre("broken", "photos", "sizeless"));

  v1::DescribePipelineRequest request;
  request.mutable_pipeline()->set_name("photos");
  grpc::ClientContext context;
  v1::DescribePipelineResponse described;
  grpc::Status status = stub_->DescribePipeline(&context, request, &described);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(described.name(), "photos");
  EXPECT_EQ(described.records(), 24);
  EXPECT_EQ(described.batch_size(), 4);
  EXPECT_EQ(described.seed(), 42u);
  EXPECT_THAT(described.classes(), ElementsAre("c0", "c1"));
  EXPECT_EQ(described.fields_size(), 3);
  EXPECT_GT(described.plan_size(), 0);

  request.mutable_pipeline()->set_name("broken");
  grpc::ClientContext broken_context;
  status = stub_->DescribePipeline(&broken_context, request, &described);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("broken.yaml:4:"));
  EXPECT_THAT(status.error_message(), HasSubstr("did you mean 'resize'"));
}

TEST_F(DaemonTest, ReportsItselfAndItsJobs) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  ASSERT_TRUE(client.trainer.ReceiveArena());
  auto ready = client.trainer.Next();
  ASSERT_TRUE(ready.has_value());
  ASSERT_TRUE(Eventually([&] {
    v1::GetStatusResponse status = Status();
    return status.jobs_size() == 1 &&
           status.jobs(0).ranks(0).slots_lent() == client.opened.slots() &&
           status.jobs(0).ranks(0).slots_ready() == client.opened.slots() - 1;  // one was read
  })) << Status().DebugString();
  v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.version(), kFeedwaterVersion);
  EXPECT_EQ(status.pid(), getpid());
  EXPECT_GT(status.uptime_s(), 0);
  EXPECT_FALSE(status.engine_name().empty());
  EXPECT_FALSE(status.engine_reason().empty());
  EXPECT_EQ(status.cpus_size(), 2);
  EXPECT_EQ(status.memory_limit_bytes(), 512 << 20);
  EXPECT_GE(status.memory_planned_bytes(),
            static_cast<int64_t>(client.opened.slots() * client.opened.slot_bytes()));
  EXPECT_GT(status.memory_resident_bytes(), 0);
  EXPECT_THAT(status.memory_sum(), HasSubstr("arenas"));
  EXPECT_FALSE(status.simd().empty());
  EXPECT_EQ(status.runtime_dir(), address());
  EXPECT_GE(status.counters().at("control_accepted"), 1u);
  EXPECT_EQ(status.counters().at("streams_opened"), 1u);
  const v1::Job& job = status.jobs(0);
  EXPECT_EQ(job.job(), "job");
  EXPECT_EQ(job.pipeline(), "photos");
  EXPECT_EQ(job.owner_uid(), geteuid());
  EXPECT_EQ(job.world_size(), 1);
  EXPECT_GE(job.batches(), 1u);
  EXPECT_EQ(job.ranks(0).pid(), getpid());
  EXPECT_EQ(job.ranks(0).slots(), client.opened.slots());
}

// It is made behind the workers and within the same limits as every other report.
TEST_F(DaemonTest, AStatusThatIsLargerThanAnAnswerMayBeIsRefused) {
  const auto start = [&](size_t overrides) {
    daemon_.reset();
    absl::StatusOr<Settings> settings = Configure();
    ASSERT_TRUE(settings.ok()) << settings.status();
    settings->overrides = std::vector<std::string>(overrides, std::string(1 << 20, 'x'));
    absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(*std::move(settings));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    stub_ = Stub();
  };
  start(2);
  EXPECT_EQ(Status().config_overrides_size(), 2 + 2);  // and two that are settled
  start(3);
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status refused = stub_->GetStatus(&context, {}, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("one answer holds 3.0 MiB"));
}

// The standard services, called with messages written out by hand: this project has no copy of
// their protos.
std::string CallRaw(const std::string& address, const std::string& method,
                    const std::string& request) {
  grpc::GenericStub stub(
      grpc::CreateChannel("unix:" + address + "/control.sock", grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::Slice slice(request);
  auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (status.ok() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices)
      bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return bytes;
}

TEST_F(DaemonTest, AnswersHealthAndReflection) {
  Start();
  const std::string serving("\x08\x01", 2);
  EXPECT_EQ(CallRaw(address(), "/grpc.health.v1.Health/Check", ""), serving);
  EXPECT_EQ(CallRaw(address(), "/grpc.health.v1.Health/Check",
                    "\x0a\x14"
                    "feedwater.v1.Control"),
            serving);
  EXPECT_THAT(CallRaw(address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                      "\x3a\x01*"),
              HasSubstr("feedwater.v1.Control"));
}

TEST_F(DaemonTest, ATextIsAPipelineToo) {
  Start();
  Client client = Connect();
  v1::OpenStreamRequest request = Request();
  request.mutable_pipeline()->mutable_text()->set_file_name("/home/me/mine.yaml");
  request.mutable_pipeline()->mutable_text()->set_yaml(PhotosPipeline());
  request.set_batch_size(3);
  request.set_seed(9);
  request.set_slots(5);
  request.set_checksum(true);
  request.set_epoch(2);
  grpc::Status status = Open(&client, request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(client.opened.pipeline(), "mine");
  EXPECT_EQ(client.opened.batch_size(), 3);
  EXPECT_EQ(client.opened.seed(), 9u);
  EXPECT_EQ(client.opened.slots(), 5u);
  EXPECT_EQ(client.opened.epoch(), 2u);
  ASSERT_TRUE(client.trainer.ReceiveArena());
  auto ready = client.trainer.Next();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->epoch, 2u);
  EXPECT_NE(ready->flags & wire::kReadyHasCrc, 0u);
}

TEST_F(DaemonTest, ASeekStartsOverElsewhere) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  ASSERT_TRUE(client.trainer.ReceiveArena());
  ASSERT_TRUE(client.trainer.Seek(1, 5, 8));
  for (;;) {
    auto ready = client.trainer.Next();
    ASSERT_TRUE(ready.has_value());
    if (ready->serial == 1) {
      EXPECT_EQ(ready->epoch, 5u);
      EXPECT_EQ(ready->next_position, 12);
      break;
    }
    ASSERT_TRUE(client.trainer.Release(*ready));
  }
}

TEST_F(DaemonTest, ACursorContinuesInTheMiddleWithAnotherWorld) {
  Start();
  Client first = Connect();
  ASSERT_TRUE(Open(&first, Request()).ok());
  Cursor cursor{first.opened.dataset_digest(), first.opened.pipeline_digest(), 42, 3, 8, 1, 4, 0};
  first.trainer.Close();
  ASSERT_TRUE(Eventually([&] { return Status().jobs_size() == 0; }));

  Client second = Connect();
  v1::OpenStreamRequest request = Request();
  request.set_cursor(FormatCursor(cursor));
  request.set_world_size(2);
  request.set_rank(1);
  grpc::Status status = Open(&second, request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(second.opened.epoch(), 3u);
  EXPECT_EQ(second.opened.position(), 8);
  EXPECT_EQ(second.opened.steps_per_epoch(), 3);
  EXPECT_EQ(second.opened.samples_per_epoch(), 12);
}

TEST_F(DaemonTest, AJobWithoutANameIsTheProcesssOwn) {
  Start();
  Client client = Connect();
  v1::OpenStreamRequest request = Request();
  request.clear_job();
  ASSERT_TRUE(Open(&client, request).ok());
  EXPECT_EQ(client.opened.job(), absl::StrCat("pid-", getpid()));
}

TEST_F(DaemonTest, ManySmallBatchesHaveMoreSlotsAndTightMemoryFewer) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  EXPECT_EQ(client.opened.slots(), 8u);
  WritePipeline("large",
                "version: 1\ndataset: {format: image_folder, root: photos, path: good}\ngraph:\n"
                "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [2048, 2048]}\n"
                "batch: {size: 4}\noutputs: [image]\n");  // 48 MiB a batch, in 512 MiB
  daemon_->Reload(*Configure());
  Client large = Connect();
  v1::OpenStreamRequest request = Request("large");
  request.set_world_size(2);
  grpc::Status status = Open(&large, request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(large.opened.slots(), 2u);
}

// --- ends

TEST_F(DaemonTest, AStreamEndsByCloseStreamOrByHangingUp) {
  Start();
  Client closed = Connect(), hung_up = Connect();
  v1::OpenStreamRequest request = Request();
  ASSERT_TRUE(Open(&closed, request).ok());
  request.set_job("other");
  ASSERT_TRUE(Open(&hung_up, request).ok());
  EXPECT_EQ(Status().jobs_size(), 2);
  grpc::ClientContext context;
  v1::CloseStreamRequest close;
  close.set_ticket(closed.ticket);
  v1::CloseStreamResponse none;
  EXPECT_TRUE(stub_->CloseStream(&context, close, &none).ok());
  auto closing = closed.trainer.Closing();
  ASSERT_TRUE(closing.has_value());
  EXPECT_EQ(closing->code, static_cast<uint32_t>(grpc::StatusCode::CANCELLED));
  hung_up.trainer.Close();
  EXPECT_TRUE(Eventually([&] { return Status().jobs_size() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Status().memory_sum().find("arenas") == std::string::npos; }))
      << Status().memory_sum();

  grpc::ClientContext again;
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext retry;
    return stub_->CloseStream(&retry, close, &none).error_code() == grpc::StatusCode::NOT_FOUND;
  }));
  close.set_ticket("x");
  EXPECT_EQ(stub_->CloseStream(&again, close, &none).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(DaemonTest, AProcessThatComesBackAtOnceGetsItsRankBack) {
  Start();
  for (int i = 0; i < 20; ++i) {
    Client client = Connect();
    grpc::Status status = Open(&client, Request());
    ASSERT_TRUE(status.ok()) << status.error_message();
  }  // hangs up, and the next one follows without a pause
}

TEST_F(DaemonTest, AClientThatLeavesWhileItsStreamIsOpenedLeavesNoJob) {
  Start();
  for (int i = 0; i < 50; ++i) {
    Client client = Connect();
    std::thread leaver([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
      client.trainer.Close();
    });
    v1::OpenStreamRequest request = Request();
    request.set_job(absl::StrCat("job", i));
    (void)Open(&client, request);
    leaver.join();
  }
  EXPECT_TRUE(Eventually([&] { return Status().jobs_size() == 0; })) << Status().ShortDebugString();
  Client client = Connect();
  EXPECT_TRUE(Open(&client, Request()).ok());
}

TEST_F(DaemonTest, AStoppingDaemonSaysSoToItsClients) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  ASSERT_TRUE(client.trainer.ReceiveArena());
  auto ready = client.trainer.Next();
  ASSERT_TRUE(ready.has_value());
  const std::byte first = *client.trainer.slot(ready->slot);
  daemon_->Stop();
  auto closing = client.trainer.Closing();
  ASSERT_TRUE(closing.has_value());
  EXPECT_EQ(closing->code, static_cast<uint32_t>(grpc::StatusCode::UNAVAILABLE));
  EXPECT_STREQ(closing->message, "the daemon is stopping");
  EXPECT_EQ(*client.trainer.slot(ready->slot), first);  // a lent batch stays readable
  EXPECT_FALSE(std::filesystem::exists(address() + "/control.sock"));
  EXPECT_FALSE(std::filesystem::exists(address() + "/data.sock"));
}

TEST_F(DaemonTest, CallsInFlightWhileItStopsAreAnsweredOrEnded) {
  for (int round = 0; round < 5; ++round) {
    Start();
    std::atomic<bool> stop = false;
    std::atomic<int> answered = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&, stub = Stub()] {
        while (!stop) {
          grpc::ClientContext context;
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
          v1::GetStatusResponse response;
          answered += stub->GetStatus(&context, {}, &response).ok();
        }
      });
    }
    EXPECT_TRUE(Eventually([&] { return answered >= 20; }));
    daemon_.reset();
    stop = true;
    for (std::thread& caller : callers) caller.join();
  }
}

TEST_F(DaemonTest, TwoDaemonsDoNotShareAFolder) {
  Start();
  auto second = Daemon::Start(*Configure());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", getpid())));
  EXPECT_EQ(Status().pid(), getpid());  // the first one still serves
}

TEST_F(DaemonTest, ADaemonTakesTheFolderOfOneThatWasKilled) {
  Start();
  daemon_.reset();
  WriteFile(address() + "/feedwaterd.lock", "99999\n");
  Start();
  Client client = Connect();
  EXPECT_TRUE(Open(&client, Request()).ok());
}

// --- opening once, reloading

TEST_F(DaemonTest, EightRanksThatComeAtOnceOpenTheDatasetOnce) {
  auto log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
  spdlog::default_logger()->sinks().push_back(log);
  Start();
  std::vector<std::thread> ranks;
  std::atomic<int> opened{0};
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(Connect());
  for (int i = 0; i < 8; ++i) {
    ranks.emplace_back([&, i] {
      v1::OpenStreamRequest request = Request();
      request.set_world_size(8);
      request.set_rank(i);
      request.set_batch_size(1);
      grpc::Status status = Open(&clients[static_cast<size_t>(i)], request);
      EXPECT_TRUE(status.ok()) << status.error_message();
      opened += status.ok();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(opened, 8);
  ASSERT_EQ(Status().jobs_size(), 1);
  EXPECT_EQ(Status().jobs(0).ranks_size(), 8);
  spdlog::default_logger()->sinks().pop_back();
  int times = 0;
  for (const std::string& line : log->last_formatted())
    times += line.find("pipeline photos: 24 records") != std::string::npos;
  EXPECT_EQ(times, 1);
}

TEST_F(DaemonTest, AReloadTakesOverPipelinesRootsAndAccess) {
  Start();
  Client running = Connect();
  ASSERT_TRUE(Open(&running, Request()).ok());
  ExpectRefused(Request("late"), grpc::StatusCode::NOT_FOUND, "late.yaml is looked for");
  WritePipeline("late", PhotosPipeline("batch: {size: 2}\n"));
  std::filesystem::remove(folder_ + "/pipelines/sizeless.yaml");
  daemon_->Reload(*Configure({"roots.more=" + folder_ + "/photos", "limits.sessions_per_uid=1"}));
  Client late = Connect();
  EXPECT_TRUE(Open(&late, Request("late")).ok());
  ExpectRefused(Request("sizeless"), grpc::StatusCode::NOT_FOUND, "sizeless");
  ASSERT_TRUE(running.trainer.ReceiveArena());
  EXPECT_TRUE(running.trainer.Next().has_value());
}

TEST_F(DaemonTest, TextFromFileNamesIsValidUtf8OnTheWire) {
  testing::WriteImageFolder(folder_ + "/photos/odd", 1, 2);
  std::filesystem::rename(folder_ + "/photos/odd/c0", folder_ + "/photos/odd/caf\xe9");
  Start();
  Client client = Connect();
  v1::OpenStreamRequest request = Request();
  request.mutable_pipeline()->mutable_text()->set_file_name("odd.yaml");
  request.mutable_pipeline()->mutable_text()->set_yaml(PhotosPipeline("batch: {size: 1}\n", "odd"));
  grpc::Status status = Open(&client, request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(client.opened.classes(), ElementsAre("caf\xef\xbf\xbd"));
}

}  // namespace
}  // namespace feedwater::server
