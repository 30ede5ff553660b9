// Requests that are none are refused before the service sees them, and leave nothing in the log
// that a client could fill.
#include <grpcpp/generic/generic_stub.h>

#include <future>

#include "tests/service/daemon_fixture.h"

namespace feedwater::server {
namespace {

class MalformedRequests : public DaemonTest {
 protected:
  // One call with any bytes as its request.
  grpc::Status Call(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(grpc::CreateChannel("unix:" + address() + "/control.sock",
                                               grpc::InsecureChannelCredentials()));
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    std::promise<grpc::Status> answered;
    stub.UnaryCall(&context, "/feedwater.v1.Control/" + method, grpc::StubOptions(), &request,
                   &response, [&](grpc::Status status) { answered.set_value(std::move(status)); });
    return answered.get_future().get();
  }
};

TEST_F(MalformedRequests, LeaveNoLineInTheLog) {
  Start();
  ::testing::internal::CaptureStderr();
  const std::string name_that_is_not_utf8("\x0a\x03\x0a\x01\xff", 5);
  const grpc::Status not_text = Call("DescribePipeline", name_that_is_not_utf8);
  const grpc::Status cut = Call("DescribePipeline", name_that_is_not_utf8.substr(0, 3));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(not_text.error_code(), grpc::StatusCode::INTERNAL) << not_text.error_message();
  EXPECT_EQ(cut.error_code(), grpc::StatusCode::INTERNAL) << cut.error_message();
  EXPECT_EQ(log.find("protobuf"), std::string::npos) << log;
  EXPECT_TRUE(Status().pid() > 0) << "and the daemon goes on serving";
}

}  // namespace
}  // namespace feedwater::server
