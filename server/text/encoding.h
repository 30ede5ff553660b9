// One text on its way to ids: where the ids go, the memory that there is, the clock. Belongs to one
// thread.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/work_clock.h"
#include "server/text/scratch.h"

namespace feedwater::server {

// What becomes of a text with more ids than there is room for.
enum class Truncation {
  kNone,   // it is refused
  kRight,  // its first ids are kept
  kLeft,   // its last ids are kept
};

// Takes ids one after the other into memory for `room` of them.
class IdSink {
 public:
  IdSink(int32_t* ids, int64_t room, Truncation truncation)
      : ids_(ids), room_(room), truncation_(truncation) {}

  // False: no further id is of use.
  bool Add(int32_t id) {
    if (count_ < room_) {
      ids_[count_++] = id;
      return count_ < room_ || truncation_ != Truncation::kRight;
    }
    if (truncation_ != Truncation::kLeft || room_ == 0) {
      is_over_ = truncation_ == Truncation::kNone;
      return false;
    }
    ids_[first_] = id;
    first_ = first_ + 1 == room_ ? 0 : first_ + 1;
    return true;
  }

  int64_t count() const { return count_; }
  bool is_over() const { return is_over_; }  // there were more than may be
  int32_t at(int64_t i) const {
    const int64_t place = first_ + i;
    return ids_[place < room_ ? place : place - room_];
  }

 private:
  int32_t* const ids_;
  const int64_t room_;
  const Truncation truncation_;
  int64_t count_ = 0, first_ = 0;
  bool is_over_ = false;
};

// Functions that work on one return false when there is nothing more to do: `status` says why, or
// is OK where the sink has had enough.
struct Encoding {
  TextScratch& scratch;
  WorkClock& clock;
  IdSink& ids;
  int32_t unknown =
      -1;  // id of words that are no tokens, where the file names none; -1: no word is
  absl::Status status = absl::OkStatus();

  bool Fail(absl::Status why) {
    status = std::move(why);
    return false;
  }
  bool NoRoom() {
    return Fail(absl::InvalidArgumentError(
        "the text becomes too long while it is normalized; cut it before"));
  }
  bool InTime() {
    if (absl::Status late = clock.Check(); !late.ok()) return Fail(std::move(late));
    return true;
  }
};

}  // namespace feedwater::server
