// A program that goes on behind whoever started it. The process forks; the first one waits until
// the second serves, and ends with status 0 then, or with the second one's where that ended before.
// The second has a session of its own, so keys of a terminal do not reach it, and no parent that
// would have to wait for it.
#pragma once

#include "absl/status/status.h"
#include "server/base/fd.h"

namespace feedwater::server {

class Background {
 public:
  // Returns in the second process, or with an error in the first and only one. Before any thread.
  absl::Status Enter();
  // Lets the first process end. Nothing happens without Enter, or again.
  void Serving();

 private:
  Fd first_;  // the first process reads the other end
};

}  // namespace feedwater::server
