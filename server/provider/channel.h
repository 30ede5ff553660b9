// One process of a provider: its connection, and the windows that it makes things in. Belongs to
// one Provided (provided.h), and is guarded by that one's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "server/provider/shared_windows.h"
#include "server/source/given_records.h"
#include "server/transport/listener.h"

namespace feedwater::server {

// A record that is asked for.
struct AskedRecord {
  int64_t record = 0;
  ProvidedSeed seed{};
  std::weak_ptr<RecordTaker> taker;
  int deaths = 0;            // of processes while they had it
  absl::Status why = {};     // of the last one, where it was one too many
  int64_t data_bytes = 0;    // that it takes in a window, where one was too small
  bool is_doubted = false;   // it was too large for a window in which it should have had room
  bool is_unwanted = false;  // the process was told that nobody waits for it any more
};

// An op's call that a process has.
struct PendingCall {
  // kNotReached: its process ended while it was at something else.
  enum class Outcome { kNone, kAnswered, kDied, kNotReached };
  Outcome outcome = Outcome::kNone;
  absl::Status why;  // of a death
};

class Channel {
 public:
  enum class State {
    kFree,
    kFilling,  // a caller writes its input
    kAsked,    // the process has it
    kRead,     // what the process has made is read
  };
  struct Window {
    State state = State::kFree;
    uint64_t serial = 0;
    int64_t asked_ns = 0;
    std::vector<AskedRecord> records;  // of a source
    PendingCall* call = nullptr;       // of an op; null: nobody waits for it
  };

  Channel(uint64_t id, Accepted connection, double timeout, size_t lane)
      : timeout_seconds(timeout), lane(lane), id_(id), connection_(std::move(connection)) {}

  uint64_t id() const { return id_; }
  int socket() const { return connection_.socket.get(); }
  int pidfd() const { return connection_.pidfd.get(); }
  const PeerIdentity& peer() const { return connection_.peer; }
  bool is_lost() const { return is_lost_; }
  // Nothing is asked of it any more. Its windows stay as long as somebody reads them.
  void Lose();
  // Ends the connection, also where another process has a copy of it. Of the listening thread.
  void HangUp();

  // Gives it these windows, in place of those that it has. REQUIRES: all are free.
  absl::Status Give(std::shared_ptr<SharedWindows> shared);
  const std::shared_ptr<SharedWindows>& shared() const { return shared_; }
  std::vector<Window>& windows() { return windows_; }
  std::optional<uint32_t> FreeWindow() const;
  bool all_free() const;
  int busy() const;  // windows that it has, or that are filled for it

  // Where it cannot be sent the connection ends.
  void SendAsk(uint32_t window, uint32_t entries, int64_t now_ns);
  // The next answer. Nothing: there is none. An error: the connection is over, or the process broke
  // the protocol.
  absl::StatusOr<std::optional<uint32_t>> Receive();
  // Since when the process is at work on what was asked first; 0: nothing is asked.
  int64_t working_since_ns() const { return order_.empty() ? 0 : working_since_ns_; }
  uint32_t first_asked() const { return order_.front(); }

  // Where its iterator stands (of an iterable dataset): in that epoch, at a place that is not
  // before `next_place` and not behind `farthest`.
  ProvidedSeed epoch{};
  int64_t next_place = 0, farthest = 0;

  const double timeout_seconds;  // for one record or call
  const size_t lane;             // whose records it makes (provided.h)
  bool grows = false;   // larger windows are made for it: it gets nothing until it has them
  bool drains = false;  // gets nothing until all its windows are free, to be given larger ones

 private:
  const uint64_t id_;
  Accepted connection_;
  std::shared_ptr<SharedWindows> shared_;
  std::vector<Window> windows_;
  std::deque<uint32_t> order_;  // windows that are asked, in their order
  uint64_t serial_ = 0;
  int64_t working_since_ns_ = 0;
  bool is_lost_ = false;
};

}  // namespace feedwater::server
