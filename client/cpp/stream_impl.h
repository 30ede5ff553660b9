// What a Stream knows: the request that opened it, the session it reads from, and the position of
// the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/position.h"
#include "client/cpp/session.h"
#include "feedwater/client.h"
#include "feedwater/v1/control.pb.h"

namespace feedwater {

struct Stream::Impl {
  static absl::StatusOr<std::unique_ptr<Impl>> Open(const std::string& address,
                                                    const StreamOptions& options);

  ~Impl() {
    if (session != nullptr) session->HangUp();
  }
  absl::StatusOr<Batch> Next();
  absl::StatusOr<std::optional<Batch>> NextInEpoch();
  absl::Status SetEpoch(uint64_t epoch);
  absl::Status Load(const std::string& state);
  absl::StatusOr<Batch> Replay(int64_t step, std::optional<uint64_t> epoch);
  absl::Status Skip(int64_t first, int64_t last, std::optional<uint64_t> epoch);

  // Connects, asks for a stream at `cursor` (JSON, or "" for the request's epoch), and maps its
  // arena. The position of the program stays as it is.
  absl::Status OpenSession(const std::string& cursor, int64_t deadline_ns);
  // Tries OpenSession where the stream stands until it succeeds or reconnect_timeout_s has passed.
  absl::Status Reconnect(const absl::Status& why);

  // Lets the session's next batch come from there, unless it does already.
  void SeekTo(EpochPosition place);
  // Lets it come from where the program's next one begins, unless that is kept already.
  void Settle();
  // Waits for the session's next batch. Nothing of the program's position changes.
  absl::StatusOr<wire::Ready> AwaitReady();
  // The program's next batch, or the first of a later epoch when its epoch has no further one.
  absl::StatusOr<wire::Ready> Fetch();
  void GiveBack(const wire::Ready& ready);
  absl::StatusOr<Batch> View(const wire::Ready& ready);
  absl::StatusOr<Batch> Lend(const wire::Ready& ready);  // View, and count it

  std::string address;
  StreamOptions options;
  v1::OpenStreamRequest request;  // without ticket and cursor
  v1::OpenStreamResponse opened;
  std::vector<Field> fields;
  std::vector<std::string> classes;
  int64_t rank = 0;
  std::shared_ptr<Session> session;
  uint32_t serial = 0;  // of the last seek; older batches are given back unseen
  std::optional<EpochPosition>
      next_at;                      // of the session's next batch; nothing: a seek must come first
  Position position;                // after the batches that the program has
  std::optional<wire::Ready> kept;  // received, the first of its epoch, but not yet handed out
  absl::Status failed;              // a bad sample: the stream stands still until it is moved
  bool debug_protect = false;
  bool greeted = false;  // the last OpenSession found a daemon, whether or not it served
};

}  // namespace feedwater
