// Runs ops that a user's own program provides (ops/python.cc). Who talks with that program is
// server/provider.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/base/philox.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/base/work_clock.h"

namespace feedwater::server {

// The op of `graph:` that such programs run.
inline constexpr char kOwnOp[] = "python";

class CallTurn;

struct OpCall {
  const std::string* name = nullptr;  // that the program serves it under
  int64_t record = 0;                 // the sample's, or the global batch's
  std::array<uint64_t, 2> seed{};
  absl::Span<const Tensor> inputs;
  absl::Span<const TensorSpec> outputs;  // as planned; -1: any size
  // Nobody waits for it any more; may be null.
  const std::atomic<bool>* gone = nullptr;
  WorkClock* clock = nullptr;  // beats while the program is waited for; may be null
  CallTurn* turn = nullptr;    // may be null: the call keeps its worker until it ends
};

// A call whose worker does others' work while the program makes it, or what was made, for a sample
// that is made again. Its end gives it up.
class SuspendedCall {
 public:
  virtual ~SuspendedCall() = default;
  virtual bool IsReady() = 0;  // the same Call would not wait any more
};

// Those of one sample or batch, by name, record and seed.
class SuspendedCalls {
 public:
  // The sample waits for this one.
  void Suspend(const OpCall& call, std::unique_ptr<SuspendedCall> suspended);
  // It has gone on behind this one, and will do so again.
  void Keep(const OpCall& call, std::unique_ptr<SuspendedCall> made);
  std::unique_ptr<SuspendedCall> Take(const OpCall& call);  // null: there is none
  bool IsReady() const;                                     // the one that was suspended last
  bool empty() const { return calls_.empty(); }
  void Clear() { calls_.clear(); }

 private:
  using Key = std::tuple<std::string, int64_t, std::array<uint64_t, 2>>;
  static Key KeyOf(const OpCall& call) { return {*call.name, call.record, call.seed}; }

  std::map<Key, std::unique_ptr<SuspendedCall>> calls_;
  Key last_;  // suspended
};

// Of a worker: whether a call may go on keeping it.
class CallTurn {
 public:
  virtual ~CallTurn() = default;
  // The call has waited for so long, and must leave the worker to others' work: it is put into
  // calls(), and ends with Aborted. What it is part of is made again later, from its beginning, and
  // finds it there, if its input is the same then. So that it is, calls that have ended are kept
  // there, too, from then on.
  virtual bool IsOver(int64_t waited_ns) = 0;
  virtual SuspendedCalls& calls() = 0;
};

// Of what a call takes and makes together. The same wherever samples are made: a decoder process
// has room for it, too.
inline constexpr int64_t kMostCallBytes = 512 << 20;

// InvalidArgument: a call of these is larger. Sizes that are open count nothing.
absl::Status CheckCallBytes(absl::Span<const TensorSpec> inputs,
                            absl::Span<const TensorSpec> outputs);

// The same of an op on batches, whose fields are of one sample.
absl::Status CheckBatchCallBytes(absl::Span<const TensorSpec> inputs,
                                 absl::Span<const TensorSpec> outputs, int64_t samples);

// The ops of one user. Thread-safe.
class OpCaller {
 public:
  virtual ~OpCaller() = default;
  // Waits for the program, and shows `take` what it has made: views that the program can still
  // write to, until `take` returns. InvalidArgument with the program's words when it raised an
  // error or gave something else than was planned; DataLoss when its process ended twice on it;
  // Unavailable when no process serves the op; Cancelled once `gone`; Aborted when its turn is
  // over.
  virtual absl::Status Call(const OpCall& call,
                            absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) = 0;
};

}  // namespace feedwater::server
