#include "server/provider/channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/transport/daemon_message.h"

namespace feedwater::server {
namespace {

absl::Status HungUp() { return absl::CancelledError("its connection ended"); }

}  // namespace

void Channel::Lose() {
  is_lost_ = true;
  order_.clear();
}

void Channel::HangUp() { shutdown(socket(), SHUT_RDWR); }

absl::Status Channel::Give(std::shared_ptr<SharedWindows> shared) {
  shared_ = std::move(shared);
  windows_.assign(shared_->windows(), Window());
  const wire::Region message = shared_->message();
  const int error = SendPacket(socket(), &message, sizeof(message), shared_->fd());
  shared_->CloseFile();
  if (error == 0) return absl::OkStatus();
  HangUp();
  return HungUp();
}

std::optional<uint32_t> Channel::FreeWindow() const {
  for (uint32_t i = 0; i < windows_.size() && !grows; ++i) {
    if (windows_[i].state == State::kFree) return i;
  }
  return std::nullopt;
}

int Channel::busy() const {
  return static_cast<int>(std::count_if(windows_.begin(), windows_.end(), [](const Window& window) {
    return window.state == State::kAsked || window.state == State::kFilling;
  }));
}

bool Channel::all_free() const {
  return std::all_of(windows_.begin(), windows_.end(),
                     [](const Window& window) { return window.state == State::kFree; });
}

void Channel::SendAsk(uint32_t window, uint32_t entries, int64_t now_ns) {
  wire::Ask ask{};
  ask.header = wire::MakeHeader<wire::Ask>(wire::Type::kAsk);
  ask.window = window;
  ask.entries = entries;
  ask.serial = ++serial_;
  if (order_.empty()) working_since_ns_ = now_ns;
  windows_[window].state = State::kAsked;
  windows_[window].serial = serial_;
  windows_[window].asked_ns = now_ns;
  order_.push_back(window);
  if (SendPacket(socket(), &ask, sizeof(ask)) != 0) HangUp();
}

absl::StatusOr<std::optional<uint32_t>> Channel::Receive() {
  wire::Answer answer{};
  iovec part{&answer, sizeof(answer)};
  msghdr header{};  // no room for control data: the kernel drops descriptors that come along
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ssize_t size = 0;
  do {
    size = recvmsg(socket(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return std::nullopt;
  if (size <= 0) return HungUp();
  if (size != sizeof(answer) || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      answer.header.type != static_cast<uint16_t>(wire::Type::kAnswer) ||
      answer.header.size != sizeof(answer) || answer.header.reserved != 0) {
    return absl::InvalidArgumentError("it sent something that is no ANSWER");
  }
  if (order_.empty() || answer.window != order_.front() ||
      answer.serial != windows_[answer.window].serial) {
    return absl::InvalidArgumentError("it sent an ANSWER to what was not asked");
  }
  const uint32_t window = order_.front();
  const size_t entries = windows_[window].records.empty() ? 1 : windows_[window].records.size();
  if (answer.entries != entries)
    return absl::InvalidArgumentError("it sent an ANSWER of another number of entries");
  order_.pop_front();
  working_since_ns_ = MonotonicNs();
  windows_[window].state = State::kRead;
  return window;
}

}  // namespace feedwater::server
