#include "server/service/gate_connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace feedwater::server {
namespace {

constexpr int kSocketBytes = 32 << 10;

}  // namespace

bool GateFlow::Read(int fd, size_t most, std::vector<char>* buffer) {
  if (bytes.size() >= most) return true;
  buffer->resize(std::max(buffer->size(), most));
  const ssize_t got = read(fd, buffer->data(), most - bytes.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  bytes.append(buffer->data(), static_cast<size_t>(got));
  return got > 0;
}

bool GateFlow::Write(int fd) {
  if (passed == 0) return true;
  const ssize_t put = send(fd, bytes.data(), passed, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put < 0) return errno == EAGAIN || errno == EINTR;
  bytes.erase(0, static_cast<size_t>(put));
  passed -= static_cast<size_t>(put);
  if (bytes.empty()) bytes.shrink_to_fit();  // idle connections hold nothing
  return true;
}

bool GateConnection::ReadAnswers(std::vector<char>* buffer) {
  const bool open = answers.Read(grpc.get(), kAnswerBytes, buffer);
  while (answers.passed < answers.bytes.size()) {
    const absl::string_view waiting = absl::string_view(answers.bytes).substr(answers.passed);
    if (answers.cutter.between_frames()) {
      if (waiting.size() < kFrameHeadBytes) break;
      const Http2Frame frame = ReadFrameHead(waiting);
      if (frame.ends_stream()) EndCall(frame.stream);
      answers.cutter.Begin(frame);
    }
    const size_t size = answers.cutter.Rest(waiting.size());
    answers.cutter.Pass(size);
    answers.passed += size;
  }
  return open;
}

void GateConnection::EndCall(uint32_t stream) {
  if (calls.erase(stream) > 0) --user->calls;
}

void LimitSocketBuffers(int fd) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF})
    (void)setsockopt(fd, SOL_SOCKET, option, &kSocketBytes, sizeof(kSocketBytes));
}

}  // namespace feedwater::server
