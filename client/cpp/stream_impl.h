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

  // Connects, asks for a stream at `cursor` (JSON, or "" for the request's epoch), and maps its
  // arena.
  absl::Status OpenSession(const std::string& cursor);
  // Tries OpenSession at the current cursor until it succeeds or reconnect_timeout_s has passed.
  absl::Status Reconnect(const absl::Status& why);
  absl::StatusOr<wire::Ready> AwaitReady();  // waits for a batch that is not stale
  absl::StatusOr<Batch> Lend(const wire::Ready& ready);

  std::string address;
  StreamOptions options;
  v1::OpenStreamRequest request;  // without ticket and cursor
  v1::OpenStreamResponse opened;
  std::vector<Field> fields;
  std::vector<std::string> classes;
  int64_t rank = 0;
  std::shared_ptr<Session> session;
  uint32_t serial = 0;  // of the last seek; older batches are given back unseen
  Cursor cursor;
  bool at_epoch_end = false;  // the cursor stands after the last batch of its epoch
  bool taken = false;  // a batch has been handed out since the stream was opened, loaded or sought
  std::optional<wire::Ready> kept;  // received, but of a later epoch than NextInEpoch() was in
  absl::Status failed;  // what came in a batch's place: the stream stands still until it moves
};

}  // namespace feedwater
