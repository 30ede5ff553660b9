// The C++ client of feedwaterd: lends a trainer its batches, in rank order, straight from the
// daemon's shared memory.
//
//   auto client = feedwater::Client::Connect();  // the daemon of this process's NUMA node
//   auto stream = client->Open({.pipeline = "imagenet-train", .batch_size = 256});
//   while (true) {
//     absl::StatusOr<feedwater::Batch> batch = stream->Next();  // lends a slot while it lives
//     if (!batch.ok()) return batch.status();
//     absl::Span<const float> images = (*batch)[0].as<float>();  // [256, 3, 224, 224], no copy
//     Train(images, (*batch)["label"].as<int64_t>());
//     if (batch->last_in_epoch()) SaveCheckpoint(stream->State());
//   }
//
// Ownership: a Batch keeps its memory mapped, so it may outlive the Stream, the Client and the
// daemon. Its tensors are read-only and valid until the Batch is destroyed. Threads: a Stream
// belongs to one thread at a time. Batches may be moved to and destroyed on any thread. Processes:
// a Stream and its Batches belong to the process that opened it. In a child that it forks, batches
// that are lent can be read while the parent keeps them; destroying them, or the Stream, there
// gives nothing back and ends nothing, and Next() and the calls that move the position are
// FailedPrecondition: a child opens a stream of its own, with a Client of its own. Errors:
// absl::Status with the daemon's code. Five kinds can be told apart further: IsStalled (the
// program keeps as many batches as the stream has slots), BadSampleOf (a sample that cannot be
// decoded under `on_bad_sample: fail`), IsChecksumMismatch (a batch that is not what the daemon
// wrote), IsDaemonLost (the daemon went away and did not come back in time; State() is where to
// continue) and of those IsNotServed (the daemon is there, but no process serves a source or an op
// of a user's own).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace feedwater {

inline constexpr const char* kClientVersion = "0.1.0";

// Element types. float16 and bfloat16 have no C++ type: read them as uint16_t.
enum class DType : uint8_t {
  kUInt8 = 1,
  kInt8,
  kBool,
  kInt16,
  kUInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};
absl::string_view DTypeName(DType dtype);  // "uint8", "float32", ...
size_t DTypeSize(DType dtype);             // bytes of one element

// One output of a pipeline: `shape` is one sample's, without the batch axis.
struct Field {
  std::string name;
  DType dtype = DType::kUInt8;
  std::vector<int64_t> shape;  // of a ragged output it begins with -1: its rows differ in number
  std::string layout;          // "plain", "HWC" or "CHW"; "encoded": the bytes of an image file
  int64_t max_rows = 0;        // of a ragged output: rows of a sample at most; 0: it is none
};

// A field of one batch: shape[0] is the number of samples; of a ragged one, the rows of all samples
// together.
struct Tensor {
  DType dtype = DType::kUInt8;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;
  // Of a ragged field: sample i has the rows offsets[i] to offsets[i + 1]. Else empty.
  absl::Span<const int64_t> offsets;

  bool is_ragged() const { return !offsets.empty(); }
  // The rows of sample i, as a tensor of their own. REQUIRES: is_ragged(), and such a sample.
  Tensor Rows(size_t i) const;

  // The elements as T. REQUIRES: sizeof(T) == DTypeSize(dtype).
  template <typename T>
  absl::Span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// A batch lent by the daemon. Move-only; destroying it gives its slot back.
class Batch {
 public:
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();

  int64_t samples() const;  // in every tensor; fewer than the batch size only with `last: partial`
  int64_t real_samples() const;  // of them neither padding nor skipped
  int64_t substituted() const;   // of them standing in for a bad sample
  int64_t skipped() const;       // of those not real (`on_bad_sample: skip_with_count`)
  uint64_t epoch() const;
  int64_t step() const;  // within the epoch, from 0
  bool last_in_epoch() const;
  int64_t published_ns() const;  // CLOCK_MONOTONIC at which the daemon published it
  int64_t received_ns() const;   // CLOCK_MONOTONIC at which Next() saw it

  size_t size() const;  // number of fields
  const Tensor& operator[](
      size_t i) const;  // in the order of the pipeline's outputs. REQUIRES: i < size()
  const Tensor& operator[](
      absl::string_view name) const;        // REQUIRES: a name of Stream::fields(); see Find
  const std::string& name(size_t i) const;  // of field i
  const Tensor* Find(absl::string_view name) const;  // nullptr when there is none

 private:
  friend class Stream;
  struct Impl;
  explicit Batch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct StreamOptions {
  std::string
      pipeline;  // a name known to the daemon, or the path of a .yaml file, which is sent to it
  std::optional<int64_t> batch_size;  // per rank; default: the file's
  // Both or neither. Default: the environment of torchrun, Horovod, MPI or Slurm, else 0 of 1; see
  // client/cpp/README.md.
  std::optional<int64_t> rank, world_size;
  std::optional<uint64_t> seed;  // default: the file's
  std::string job;  // ranks of one job give the same name; default: from the launcher, else this
                    // process's own
  std::optional<uint32_t> slots;  // batches in shared memory; default: the daemon chooses
  std::string state;    // a saved State(): continue there, also with another world or batch size
  uint64_t epoch = 0;   // where to start without a state
  bool verify = false;  // CRC32C of every batch, checked by Next(); see IsChecksumMismatch
  // Debugging: the memory of a batch can be read only while the Batch lives, so that a span kept
  // for too long is a SIGSEGV where it is used. Costs two system calls a batch. Default: whether
  // $FEEDWATER_DEBUG_PROTECT is set and not 0.
  std::optional<bool> debug_protect;
  // How long Next() waits while the program itself holds every slot; after as long without a batch
  // it asks whether the daemon answers at all, and tells `notice` if not.
  double stall_timeout_s = 10;
  double reconnect_timeout_s = 60;  // how long Next() waits for a daemon that went away
  // Told, in one line for people, when Next() has waited for such a daemon for a second, and when
  // the daemon serves again. Called from a thread of this library while Next() waits; it must not
  // use the stream. Default: a line on stderr.
  std::function<void(absl::string_view)> notice;
};

// One rank's ordered batches, endless: after an epoch's last batch comes the first of the next
// epoch.
class Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  // The next batch; waits for it. REQUIRES: no other call on this stream at the same time.
  absl::StatusOr<Batch> Next();
  // The same, but stops between epochs: nothing once after each epoch's last batch, as the end of a
  // `for` loop in Python. After a state of an epoch's end the next epoch comes at once, unless
  // SetEpoch says the state's own.
  absl::StatusOr<std::optional<Batch>> NextInEpoch();
  // Continues with the first batch of this epoch. Changes nothing when that comes next anyway, or
  // when the stream was opened inside this epoch and no batch has been taken yet; but a batch that
  // could not be made is tried again.
  absl::Status SetEpoch(uint64_t epoch);
  // Continues at a saved State(), as StreamOptions::state does. Batches already lent stay valid.
  absl::Status Load(const std::string& state);
  // The cursor after the batches that Next() has returned: at most 1 KiB of JSON, for
  // StreamOptions::state. What Skip() leaves out further on is part of it.
  std::string State() const;

  // Step `step` of an epoch (default: the one that the position stands in) once more, or ahead of
  // its time: this rank's batch, byte for byte. The position stays where it is. Steps are those of
  // the present world and batch size, as Batch::step() tells them while the epoch lasts.
  absl::StatusOr<Batch> Replay(int64_t step, std::optional<uint64_t> epoch = std::nullopt);
  // Leaves out steps `first` to `last`, both included, of an epoch (default: epoch()), such as
  // those of a loss spike. Every rank must do so, at any moment before they come. A range that has
  // been passed is forgotten; at most 8 at a time. With another global batch size a batch that
  // would reach into a range is left out whole.
  absl::Status Skip(int64_t first, int64_t last, std::optional<uint64_t> epoch = std::nullopt);

  const std::vector<Field>& fields() const;
  const std::vector<std::string>& classes() const;
  // What whoever opened the stream should know: the pipeline's file is broken, and the version
  // before is used. "" is nothing.
  const std::string& warning() const;
  const std::string& pipeline() const;
  const std::string& job() const;
  int64_t rank() const;
  int64_t world_size() const;
  int64_t batch_size() const;
  int64_t records() const;            // of the dataset; of a mix of all its sources
  int64_t steps_per_epoch() const;    // of a whole epoch, the same on every rank
  int64_t samples_per_epoch() const;  // this rank's share of a whole epoch
  uint64_t seed() const;
  // Of the next batch. After an epoch's last one it is the next epoch, while State() still stands
  // at the end of the old one: a stream that resumes there goes on with the next one, too.
  uint64_t epoch() const;
  uint32_t slots() const;

 private:
  friend class Client;
  struct Impl;
  explicit Stream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A daemon's address. Cheap; holds one control connection.
class Client {
 public:
  // `address` is the daemon's runtime_dir; default $FEEDWATER_ADDRESS, else the instance of this
  // process's NUMA node. Unavailable with the paths tried when there is no daemon;
  // FailedPrecondition naming both versions when it speaks another protocol.
  static absl::StatusOr<Client> Connect(absl::string_view address = "");
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  absl::StatusOr<Stream> Open(const StreamOptions& options);
  absl::StatusOr<std::vector<std::string>> Pipelines();
  const std::string& address() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

int64_t MonotonicNs();  // CLOCK_MONOTONIC, the clock of published_ns and received_ns

struct BadSample {
  int64_t record = -1;       // -1: not about one record
  std::string path, reason;  // the reason without record and path, which the message names, too
};
std::optional<BadSample> BadSampleOf(const absl::Status& status);
bool IsStalled(const absl::Status& status);
// StreamOptions::verify found a batch that is not what the daemon wrote. The next Next() asks for
// it once more.
bool IsChecksumMismatch(const absl::Status& status);
bool IsDaemonLost(const absl::Status& status);
// No process serves a source or an op of a user's own that the pipeline names, or none does any
// more; IsDaemonLost holds, too. Once the program that serves it runs again, Load(State()) goes on
// with the batch that could not be made.
bool IsNotServed(const absl::Status& status);

}  // namespace feedwater
