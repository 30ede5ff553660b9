// What a Stream knows: the request that opened it, the session it reads from, and the cursor after
// the batches handed out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/cursor.h"
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
  uint64_t epoch() const;
  bool HasNoRest() const;  // no batch of the epoch is left where the cursor stands

  // Connects, asks for a stream at `cursor` (JSON, or "" for the request's epoch), and maps its
  // arena. The position of the program stays as it is.
  absl::Status OpenSession(const std::string& cursor, int64_t deadline_ns);
  // Tries OpenSession where the stream stands until it succeeds or reconnect_timeout_s has passed.
  absl::Status Reconnect(const absl::Status& why);
  std::string CursorAt(Place place) const;  // as it travels to the daemon

  Place Wanted() const;  // where the program's next batch begins
  void SeekTo(
      Place place);  // lets the session's next batch come from there, unless it does already
  void Settle();     // SeekTo(Wanted()), or nothing where that batch is kept already
  // Waits for the session's next batch. Nothing of the program's position changes.
  absl::StatusOr<wire::Ready> AwaitReady();
  // The batch at Wanted(), or the first of a later epoch when its epoch has no further one.
  absl::StatusOr<wire::Ready> Fetch();
  void GiveBack(const wire::Ready& ready);
  void BeginEpoch(uint64_t epoch);
  absl::StatusOr<Batch> View(const wire::Ready& ready);
  absl::StatusOr<Batch> Lend(const wire::Ready& ready);  // View, and count it

  int64_t GlobalBatch() const;
  void TakeAlignment(int64_t position);
  // The position at which a step of an epoch begins.
  absl::StatusOr<int64_t> PositionOf(uint64_t epoch, int64_t step) const;

  std::string address;
  StreamOptions options;
  v1::OpenStreamRequest request;  // without ticket and cursor
  v1::OpenStreamResponse opened;
  std::vector<Field> fields;
  std::vector<std::string> classes;
  int64_t rank = 0;
  std::shared_ptr<Session> session;
  uint32_t serial = 0;           // of the last seek; older batches are given back unseen
  std::optional<Place> next_at;  // of the session's next batch; nothing: a seek must come first
  Cursor cursor;                 // after the batches that the program has
  int64_t alignment = 0;  // of the steps of the cursor's epoch: positions modulo the global batch
  bool at_epoch_end = false;  // the cursor stands after the last batch of its epoch
  bool resumed = false;  // a state was loaded, and since then nothing taken and no epoch chosen
  bool taken = false;  // a batch has been handed out since the stream was opened, loaded or sought
  std::optional<wire::Ready> kept;  // received, the first of its epoch, but not yet handed out
  absl::Status failed;              // a bad sample: the stream stands still until it is moved
  bool debug_protect = false;
  bool greeted = false;  // the last OpenSession found a daemon, whether or not it served
};

}  // namespace feedwater
