// A whole daemon over real sockets: the error of every bad request, and that it leaves nothing
// behind.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/base/escape.h"
#include "server/daemon.h"
#include "server/service/cursor.h"
#include "server/service/messages.h"
#include "tests/service/daemon_fixture.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

TEST(FittingMessage, KeepsWholeCharactersOfBothEnds) {
  EXPECT_EQ(FittingMessage("100 %"), "100 %");
  const std::string fits(6 << 10, 'a');
  EXPECT_EQ(FittingMessage(fits), fits);
  EXPECT_EQ(FittingMessage(fits + "b"),
            std::string(4 << 10, 'a') + " [1025 bytes left out] " + std::string(1023, 'a') + "b");
  std::string wide;
  for (int i = 0; i < 4000; ++i) wide += "\u20ac";
  const std::string cut = FittingMessage(wide);
  EXPECT_EQ(ToUtf8(cut), cut);
  EXPECT_LE(cut.size() * 3, size_t{6 << 10});
}

TEST_F(DaemonTest, EveryBadRequestHasItsCodeAndSaysWhatIsWrong) {
  using grpc::StatusCode;
  Start({"limits.pipeline_bytes=4KiB", "limits.max_slot=1MiB"});
  struct Case {
    const char* words;
    StatusCode code;
    std::function<void(v1::OpenStreamRequest*)> spoil;
  };
  const Case cases[] = {
      {"unknown pipeline 'phots', did you mean 'photos'", StatusCode::NOT_FOUND,
       [](auto* r) { r->mutable_pipeline()->set_name("phots"); }},
      {"unknown pipeline ''", StatusCode::NOT_FOUND,
       [](auto* r) { r->mutable_pipeline()->set_name(""); }},
      {"unknown pipeline", StatusCode::NOT_FOUND,
       [](auto* r) { r->mutable_pipeline()->set_name("../photos"); }},
      {"no pipeline", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->clear_pipeline(); }},
      {"rank 1 is not in [0, 1)", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_rank(1); }},
      {"rank -1", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_rank(-1); }},
      {"world_size is 0", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_world_size(0); }},
      {"world_size is", StatusCode::INVALID_ARGUMENT,
       [](auto* r) { r->set_world_size(INT64_MAX); }},
      {"batch_size is 0", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_batch_size(0); }},
      {"batch_size is -5", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_batch_size(-5); }},
      {"sets no batch size", StatusCode::INVALID_ARGUMENT,
       [](auto* r) { r->mutable_pipeline()->set_name("sizeless"); }},
      {"has no whole step", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_batch_size(25); }},
      {"", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_batch_size(INT64_MAX); }},
      {"slots is 0", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_slots(0); }},
      {"slots is 65", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_slots(65); }},
      {"job has 257 bytes", StatusCode::INVALID_ARGUMENT,
       [](auto* r) { r->set_job(std::string(257, 'j')); }},
      {"control character", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_job("a\nb"); }},
      {"control character", StatusCode::INVALID_ARGUMENT,
       [](auto* r) { r->set_client("\x1b[31m"); }},
      {"ticket has 3 bytes", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_ticket("abc"); }},
      {"no live data connection", StatusCode::UNAVAILABLE,
       [](auto* r) { r->set_ticket(std::string(16, 't')); }},
      {"cursor", StatusCode::INVALID_ARGUMENT, [](auto* r) { r->set_cursor("{}"); }},
      {"more than limits.pipeline_bytes = 4096", StatusCode::INVALID_ARGUMENT,
       [](auto* r) { r->mutable_pipeline()->mutable_text()->set_yaml(std::string(5000, '#')); }},
      {"mine.yaml:2:", StatusCode::INVALID_ARGUMENT,
       [](auto* r) {
         r->mutable_pipeline()->mutable_text()->set_file_name("mine.yaml");
         r->mutable_pipeline()->mutable_text()->set_yaml(
             "version: 1\ndataset: {format: image_foldr, root: photos, path: x}\noutputs: "
             "[data]\n");
       }},
      {"unknown root", StatusCode::NOT_FOUND,
       [](auto* r) {
         r->mutable_pipeline()->mutable_text()->set_file_name("mine.yaml");
         r->mutable_pipeline()->mutable_text()->set_yaml(
             "version: 1\ndataset: {format: image_folder, root: fotos, path: good}\ngraph: "
             "[{decode: {in: data, out: image}}, {resize: {in: image, size: [8, 8]}}]\nbatch: "
             "{size: 1}\noutputs: [image]\n");
       }},
  };
  for (const Case& one : cases) {
    v1::OpenStreamRequest request = Request();
    one.spoil(&request);
    ExpectRefused(request, one.code, one.words);
  }
  // A batch larger than a slot may be, in a pipeline that would have the records for it.
  v1::OpenStreamRequest request = Request();
  request.set_batch_size(24);
  Client fits = Connect();
  EXPECT_TRUE(Open(&fits, request).ok());
  WritePipeline("padded",
                "version: 1\ndataset: {format: image_folder, root: photos, path: good}\nsampler: "
                "{last: pad}\ngraph:\n"
                "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [32, "
                "32]}\noutputs: [image]\n");
  daemon_->Reload(*Configure());
  request = Request("padded");
  request.set_batch_size(4096);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "");
  // The daemon goes on serving others.
  auto ready = fits.trainer.ReceiveArena() ? fits.trainer.Next() : std::nullopt;
  EXPECT_TRUE(ready.has_value());
}

TEST_F(DaemonTest, RefusedStreamsLeaveNothingBehind) {
  Start({"limits.sessions_per_uid=1"});
  for (int i = 0; i < 20; ++i) {
    v1::OpenStreamRequest request = Request();
    request.set_batch_size(i % 2 == 0 ? 0 : 100);
    ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "batch_size");
  }
  Client client = Connect();
  grpc::Status status = Open(&client, Request());
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(DaemonTest, TroubleWithADatasetIsTheStreamsErrorAndNotTheDaemons) {
  using grpc::StatusCode;
  std::filesystem::create_directories(folder_ + "/photos/empty");
  std::filesystem::create_directories(folder_ + "/photos/classless/only");
  std::filesystem::create_directory_symlink("/usr", folder_ + "/photos/leak");
  WriteFile(folder_ + "/photos/file", "not a folder");
  Start();
  const std::pair<const char*, std::vector<StatusCode>> cases[] = {
      {"nowhere", {StatusCode::NOT_FOUND}},
      {"empty",
       {StatusCode::INVALID_ARGUMENT, StatusCode::FAILED_PRECONDITION, StatusCode::NOT_FOUND}},
      {"classless",
       {StatusCode::INVALID_ARGUMENT, StatusCode::FAILED_PRECONDITION, StatusCode::NOT_FOUND}},
      {"../pipelines", {StatusCode::PERMISSION_DENIED, StatusCode::INVALID_ARGUMENT}},
      {"/etc", {StatusCode::PERMISSION_DENIED, StatusCode::INVALID_ARGUMENT}},
      {"leak", {StatusCode::PERMISSION_DENIED}},
      {"file",
       {StatusCode::INVALID_ARGUMENT, StatusCode::FAILED_PRECONDITION, StatusCode::NOT_FOUND}},
  };
  for (const auto& [path, codes] : cases) {
    Client client = Connect();
    v1::OpenStreamRequest request = Request();
    request.mutable_pipeline()->mutable_text()->set_file_name("mine.yaml");
    request.mutable_pipeline()->mutable_text()->set_yaml(
        PhotosPipeline("batch: {size: 1}\n", path));
    grpc::Status status = Open(&client, request);
    EXPECT_THAT(codes, ::testing::Contains(status.error_code()))
        << path << ": " << status.error_message();
    EXPECT_FALSE(status.error_message().empty());
  }
  Client good = Connect();
  EXPECT_TRUE(Open(&good, Request()).ok());
}

TEST_F(DaemonTest, ABatchThatDoesNotFitIntoMemoryIsRefusedWithTheSum) {
  WritePipeline("huge",
                "version: 1\ndataset: {format: image_folder, root: photos, path: good}\ngraph:\n"
                "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [4096, "
                "4096]}\nbatch: {size: 12}\n"
                "outputs: [image]\n");  // 576 MiB a batch
  Start();
  v1::OpenStreamRequest request = Request("huge");
  ExpectRefused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "512");
}

TEST_F(DaemonTest, ACursorOfSomethingElseIsRefusedWithTheFieldNamed) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  const Cursor good{
      client.opened.dataset_digest(), client.opened.pipeline_digest(), 42, 0, 4, 1, 4, 0};
  auto refused = [&](Cursor cursor, grpc::StatusCode code, const std::string& words) {
    v1::OpenStreamRequest request = Request();
    request.set_job("resumed");
    request.set_cursor(FormatCursor(cursor));
    ExpectRefused(request, code, words);
  };
  Cursor cursor = good;
  cursor.dataset = std::string(32, '0');
  refused(cursor, grpc::StatusCode::FAILED_PRECONDITION, "the files have changed since");
  cursor = good;
  cursor.pipeline = std::string(32, '0');
  refused(cursor, grpc::StatusCode::FAILED_PRECONDITION, "pipeline");
  cursor = good;
  cursor.seed = 1;
  refused(cursor, grpc::StatusCode::FAILED_PRECONDITION, "seed is 1");
  cursor = good;
  cursor.position = 25;
  refused(cursor, grpc::StatusCode::INVALID_ARGUMENT, "position 25");
  v1::OpenStreamRequest request = Request();
  request.set_cursor(std::string(1025, ' '));
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "1024");
}

TEST_F(DaemonTest, RanksOfAJobMustAgreeAndBeDifferent) {
  Start();
  Client first = Connect();
  v1::OpenStreamRequest request = Request();
  request.set_world_size(2);
  ASSERT_TRUE(Open(&first, request).ok());
  v1::OpenStreamRequest other = request;
  other.set_rank(1);
  other.set_world_size(3);
  ExpectRefused(other, grpc::StatusCode::FAILED_PRECONDITION, "world");
  other = request;
  other.set_rank(1);
  other.set_batch_size(2);
  ExpectRefused(other, grpc::StatusCode::FAILED_PRECONDITION, "batch");
  other = request;
  other.set_rank(1);
  other.set_seed(1);
  ExpectRefused(other, grpc::StatusCode::FAILED_PRECONDITION, "seed");
  ExpectRefused(request, grpc::StatusCode::ALREADY_EXISTS, "rank 0");
  Client second = Connect();
  other = request;
  other.set_rank(1);
  EXPECT_TRUE(Open(&second, other).ok());
  ASSERT_EQ(Status().jobs_size(), 1);
  EXPECT_EQ(Status().jobs(0).ranks_size(), 2);
}

TEST_F(DaemonTest, OneConnectionHasOneStream) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  v1::OpenStreamRequest again = Request();
  again.set_job("another");
  grpc::Status status = Open(&client, again);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  ASSERT_TRUE(client.trainer.ReceiveArena());
  EXPECT_TRUE(client.trainer.Next().has_value());  // the first one is none the worse
}

TEST_F(DaemonTest, StreamsAboveTheQuotaAreRefusedWithItsName) {
  Start({"limits.sessions_per_uid=3"});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    v1::OpenStreamRequest request = Request();
    request.set_job(absl::StrCat("job", i));
    ASSERT_TRUE(Open(&clients.back(), request).ok());
  }
  ExpectRefused(Request(), grpc::StatusCode::RESOURCE_EXHAUSTED, "limits.sessions_per_uid = 3");
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] {
    Client client = Connect();
    return Open(&client, Request()).ok();
  }));
}

}  // namespace
}  // namespace feedwater::server
