// A batch as the program holds it: views into its slot, which goes back when it is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/session.h"
#include "feedwater/client.h"
#include "proto/shm/wire.h"

namespace feedwater {

struct Batch::Impl {
  std::shared_ptr<Session> session;
  wire::Ready ready;
  int64_t received_ns = 0;
  std::vector<Tensor> tensors;
  std::vector<std::vector<int64_t>> offsets;  // of each; empty where it is not ragged
  std::vector<std::string> names;

  ~Impl() { session->Release(ready.slot, ready.generation); }
  // Compares the bytes with the daemon's checksum.
  absl::Status CheckSum() const;
};

}  // namespace feedwater
