// A data server on a socket in a folder of its own, and what its tests ask the kernel about this
// process.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/transport/data_server.h"
#include "tests/testing/declared_count.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_trainer.h"

namespace feedwater::server {

using testing::Eventually;
using testing::FakeTrainer;

inline int OpenDescriptors() {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    n += !entry.path().empty();
  return n;
}

inline int MappedArenas() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);)
    n += line.find("memfd:feedwater-arena") != std::string::npos;
  return n;
}

inline FieldSpec Bytes(std::string name, int64_t bytes) {
  FieldSpec field;
  field.name = std::move(name);
  field.spec = {DType::kUInt8, Layout::kPlain, {bytes}};
  return field;
}

class DataServerTest : public ::testing::Test {
 protected:
  DataServerTest() {
    char folder[] = "/tmp/feedwater-transport-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/data.sock";
  }
  ~DataServerTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(std::function<void(DataServer::Options*)> change = {}) {
    DataServer::Options options;
    options.socket_path = path_;
    if (change) change(&options);
    auto server = DataServer::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  static ArenaOptions Arena(int slots = 4, int64_t sample_bytes = 1000, int64_t batch_size = 8) {
    ArenaOptions options;
    options.layout = *SlotLayout::Create({Bytes("image", sample_bytes), Bytes("label", 8)},
                                         batch_size, int64_t{1} << 40);
    options.slots = slots;
    return options;
  }

  struct Opened {
    FakeTrainer trainer;
    SessionTicket ticket;
    std::shared_ptr<SlotPool> pool;
    std::shared_ptr<std::atomic<int>> closed = std::make_shared<std::atomic<int>>(0);
  };
  // A whole honest handshake.
  std::optional<Opened> Open(const ArenaOptions& arena = Arena(), SessionEvents events = {}) {
    FakeTrainer trainer(path_);
    const auto ticket = trainer.Hello();
    if (!ticket) return std::nullopt;
    Opened opened{std::move(trainer), *ticket, nullptr};
    events.closed = [closed = opened.closed, then = std::move(events.closed)] {
      ++*closed;
      if (then) then();
    };
    auto pool = server_->OpenSession(*ticket, arena, std::move(events));
    if (!pool.ok() || !opened.trainer.ReceiveArena()) return std::nullopt;
    opened.pool = *std::move(pool);
    return opened;
  }

  // One batch there and back.
  static bool Works(Opened* session) {
    int slot = -1;
    if (!Eventually([&] { return (slot = session->pool->Acquire()) >= 0; })) return false;
    BatchMeta meta;
    meta.step = ++steps_;
    std::memset(session->pool->data(slot), static_cast<int>(steps_), 100);
    session->pool->Publish(slot, meta);
    const auto ready = session->trainer.Next();
    return ready && ready->step == steps_ &&
           session->trainer.slot(ready->slot)[99] == static_cast<std::byte>(steps_) &&
           session->trainer.Release(*ready);
  }

  uint64_t Count(const std::string& counter) const {
    return testing::DeclaredCount(server_->counters(), counter);
  }
  bool CountBecomes(const std::string& counter, uint64_t n) const {
    return Eventually([&] { return Count(counter) >= n; }) && Count(counter) == n;
  }

  static inline int64_t steps_ = 0;
  std::string folder_, path_;
  std::unique_ptr<DataServer> server_;
};

}  // namespace feedwater::server
