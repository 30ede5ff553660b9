// The calls of io_uring, and the results of its completions. liburing's functions give -errno.
#include <liburing.h>
#include <signal.h>

#include "server/storage/engine.h"
#include "tests/faults/fault_injection.h"

using feedwater::faults::Fails;
using feedwater::faults::Hit;
using feedwater::faults::Next;
using feedwater::faults::Rule;
using feedwater::faults::Shortened;

namespace {

// Replaces the results of completions that have come since the last look.
void Falsify(struct io_uring* ring) {
  // A worker has one ring, the probe another after it.
  thread_local const struct io_uring* last_ring = nullptr;
  thread_local unsigned looked_at = 0;
  const unsigned tail = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
  const unsigned head = *ring->cq.khead;
  if (last_ring != ring || tail - looked_at > *ring->cq.kring_entries) looked_at = head;
  last_ring = ring;
  if (head - looked_at < *ring->cq.kring_entries) looked_at = head;  // consumed unseen
  for (; looked_at != tail; ++looked_at) {
    io_uring_cqe* cqe = &ring->cq.cqes[looked_at & *ring->cq.kring_mask];
    const auto* op = reinterpret_cast<const feedwater::server::ReadOp*>(cqe->user_data);
    const Rule* rule = Hit({"read", nullptr, -1, op->file->path.c_str()});
    if (rule == nullptr) continue;
    if (rule->error != 0) {
      cqe->res = static_cast<int>(-rule->error);
    } else if (cqe->res > 0) {
      cqe->res = static_cast<int>(Shortened(rule, static_cast<size_t>(cqe->res)));
    }
  }
}

}  // namespace

extern "C" {

int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* parameters) {
  NEXT(io_uring_queue_init_params);
  const Rule* rule = Hit({"io_uring_setup", CALLER, -1, nullptr, parameters->flags});
  return Fails(rule) ? static_cast<int>(-rule->error) : next(entries, ring, parameters);
}

int io_uring_register(unsigned fd, unsigned operation, const void* argument, unsigned count) {
  NEXT(io_uring_register);
  const Rule* rule = Hit({"io_uring_register", CALLER, -1, nullptr, operation});
  return Fails(rule) ? static_cast<int>(-rule->error) : next(fd, operation, argument, count);
}

int io_uring_submit_and_wait(struct io_uring* ring, unsigned wanted) {
  NEXT(io_uring_submit_and_wait);
  const Rule* rule = Hit({"io_uring_enter", CALLER});
  if (Fails(rule)) return static_cast<int>(-rule->error);
  const int result = next(ring, wanted);
  Falsify(ring);
  return result;
}

int io_uring_submit_and_get_events(struct io_uring* ring) {
  NEXT(io_uring_submit_and_get_events);
  const Rule* rule = Hit({"io_uring_enter", CALLER});
  if (Fails(rule)) return static_cast<int>(-rule->error);
  const int result = next(ring);
  Falsify(ring);
  return result;
}

int __io_uring_get_cqe(struct io_uring* ring, struct io_uring_cqe** cqe, unsigned submit,
                       unsigned wanted, sigset_t* mask) {
  NEXT(__io_uring_get_cqe);
  const int result = next(ring, cqe, submit, wanted, mask);
  Falsify(ring);
  return result;
}

}  // extern "C"
