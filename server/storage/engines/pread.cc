// Engine `pread`: works everywhere. Submit asks the kernel to read ahead, Collect does the read, so
// several reads still overlap on the device although this thread waits for one at a time. Costs one
// more system call a read than io_uring's batches and cannot overlap waiting with decoding.
#include <fcntl.h>

#include <deque>

#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

class PreadEngine final : public ReadEngine {
 public:
  absl::string_view name() const override { return "pread"; }

  void Submit(ReadOp* op) override {
    const bool complete = !Begin(op);
    if (!complete && !op->file->direct_io) {
      // Advice: where the file system does not take it, the read in Collect is merely slower.
      (void)posix_fadvise(op->file->fd.get(), op->offset, op->length, POSIX_FADV_WILLNEED);
    }
    queue_.push_back({op, complete});
  }

  ReadOp* Collect(bool) override {
    if (queue_.empty()) return nullptr;
    Queued next = queue_.front();
    queue_.pop_front();
    if (!next.complete) ReadRest(next.op);
    return next.op;
  }

  size_t in_flight() const override { return queue_.size(); }

 private:
  struct Queued {
    ReadOp* op;
    bool complete;
  };
  std::deque<Queued> queue_;
};

const Registrar kRegistrar(
    "pread", EngineEntry{"pread(2) with read-ahead advice; works everywhere.",
                         /*preference=*/1,
                         [] { return absl::StatusOr<std::string>("pread works everywhere"); },
                         [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
                           return std::make_unique<PreadEngine>();
                         }});

}  // namespace
}  // namespace feedwater::server
