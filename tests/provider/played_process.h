// A process of a user's program, played by a thread that speaks as one does, well and badly; and
// what tests of providers share. Real programs are in tests/integration.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/base/payload.h"
#include "server/graph/op_caller.h"
#include "server/provider/providers.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {

using ::feedwater::testing::Eventually;

inline constexpr uint32_t kUser = 1000;

// A process of a user's program. `make` answers one entry; false: it ends instead.
class PlayedProcess {
 public:
  using Make = std::function<bool(PlayedProcess&, uint32_t window, wire::Entry* entry)>;

  PlayedProcess(Providers* providers, const Offer& offer, Make make) : make_(std::move(make)) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = Fd(ends[0]);
    Accepted connection;
    connection.socket = Fd(ends[1]);
    connection.peer = {kUser, kUser, getpid()};
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    entered_ = providers->Enter(std::move(connection), offer);
    if (entered_.ok()) thread_ = std::thread([this] { Run(); });
  }
  ~PlayedProcess() {
    End();
    Unmap();
  }
  void End() {
    shutdown(socket_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    socket_ = Fd();
  }

  const absl::StatusOr<int>& entered() const { return entered_; }
  int asked() const { return asked_; }
  int regions() const { return regions_; }
  size_t data_bytes() const { return region_.window_bytes - SharedWindows::kEntriesBytes; }
  std::byte* Window(uint32_t window) { return data_ + window * region_.window_bytes; }
  std::byte* words() { return Window(region_.windows); }

  void GiveNumber(uint32_t window, wire::Entry* entry, int64_t number, uint64_t at) {
    const Tensor tensor{{DType::kInt64, Layout::kPlain, {}}, reinterpret_cast<std::byte*>(&number)};
    entry->offset = at;
    entry->bytes = static_cast<uint64_t>(*PayloadBytes({tensor.spec}));
    WritePayload({tensor}, Window(window) + at);
  }
  static void Fail(std::byte* window, wire::Entry* entry, absl::string_view text) {
    entry->code = static_cast<uint32_t>(wire::EntryCode::kFailed);
    entry->offset = SharedWindows::kEntriesBytes;
    entry->bytes = text.size();
    std::memcpy(window + entry->offset, text.data(), text.size());
  }
  void Unmap() {
    if (data_ != nullptr) munmap(data_, region_.region_bytes);
    data_ = nullptr;
  }
  void Send(const wire::Answer& answer) { send(socket_.get(), &answer, sizeof(answer), 0); }

 private:
  void Run() {
    for (;;) {
      std::byte packet[64];
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      iovec part{packet, sizeof(packet)};
      msghdr header{};
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
      if (recvmsg(socket_.get(), &header, 0) <= 0) return;
      wire::Header kind;
      std::memcpy(&kind, packet, sizeof(kind));
      if (kind.type == static_cast<uint16_t>(wire::Type::kRegion)) {
        Unmap();  // the one before
        std::memcpy(&region_, packet, sizeof(region_));
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
        const Fd file(fd);
        data_ = static_cast<std::byte*>(
            mmap(nullptr, region_.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        ++regions_;
        continue;
      }
      wire::Ask ask;
      std::memcpy(&ask, packet, sizeof(ask));
      for (uint32_t i = 0; i < ask.entries; ++i) {
        ++asked_;
        wire::Entry entry;
        std::byte* const at = Window(ask.window) + i * sizeof(entry);
        std::memcpy(&entry, at, sizeof(entry));
        index_ = i;
        if (!make_(*this, ask.window, &entry)) {
          shutdown(socket_.get(), SHUT_RDWR);
          return;
        }
        std::memcpy(at, &entry, sizeof(entry));
      }
      wire::Answer answer{};
      answer.header = wire::MakeHeader<wire::Answer>(wire::Type::kAnswer);
      answer.window = ask.window;
      answer.entries = ask.entries;
      answer.serial = ask.serial;
      Send(answer);
    }
  }

 public:
  uint32_t index_ = 0;  // of the entry in its window

 private:
  const Make make_;
  Fd socket_;
  absl::StatusOr<int> entered_ = 0;
  std::thread thread_;
  wire::Region region_{};
  std::byte* data_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::atomic<int> asked_{0}, regions_{0};
};

// Gives number 10 * record.
inline bool TenTimes(PlayedProcess& process, uint32_t window, wire::Entry* entry) {
  process.GiveNumber(window, entry, 10 * entry->record,
                     SharedWindows::kEntriesBytes + process.index_ * 256);
  return true;
}

class Taker : public RecordTaker {
 public:
  void Given(const absl::Status& status, absl::Span<const std::byte> bytes,
             std::shared_ptr<const void> holds) override {
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    holds = nullptr;
    given_.set_value({status, std::move(copy)});
  }
  std::pair<absl::Status, std::vector<std::byte>> Get() { return given_.get_future().get(); }
  int64_t Number() {
    const auto [status, bytes] = Get();
    if (!status.ok()) return -1;
    std::vector<Tensor> tensors;
    const TensorSpec spec{DType::kInt64, Layout::kPlain, {}};
    const absl::Status read = ReadPayload(
        bytes, {spec}, [](size_t) { return std::string("n"); }, &tensors);
    return read.ok() ? *tensors[0].as<int64_t>() : -2;
  }

 private:
  std::promise<std::pair<absl::Status, std::vector<std::byte>>> given_;
};

inline Offer SourceOf(int64_t records, const std::string& name = "mine") {
  Offer offer;
  offer.user = kUser;
  offer.source.name = name;
  offer.source.records = records;
  offer.source.fields = {{"number", {DType::kInt64, Layout::kPlain, {}}, "", 0}};
  return offer;
}

// One worker of an iterable dataset.
inline Offer WorkerOf(int64_t records, int64_t worker, int64_t workers) {
  Offer offer = SourceOf(records);
  offer.source.workers = workers;
  offer.worker = worker;
  return offer;
}

inline Offer OpOf(const std::string& name) {
  Offer offer;
  offer.kind = Offer::Kind::kOp;
  offer.user = kUser;
  offer.source.name = name;
  return offer;
}

class ProvidersTest : public ::testing::Test {
 protected:
  std::shared_ptr<RecordGiver> Giver() { return (*providers_->Find(kUser, "mine")).giver; }
  std::shared_ptr<Taker> Ask(RecordGiver& giver, int64_t record) {
    auto taker = std::make_shared<Taker>();
    giver.Ask(record, {1, 2}, taker);
    return taker;
  }
  uint64_t Counter(const std::string& name) { return providers_->Counters().at(name); }

  std::shared_ptr<UserShares> shares_ =
      std::make_shared<UserShares>(MemoryBudget::Create(256 << 20));
  std::shared_ptr<Providers> providers_ = *Providers::Create({shares_, 4});
};

}  // namespace feedwater::server
