#include "server/storage/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <csetjmp>
#include <cstring>

namespace feedwater::server {
namespace {

constexpr size_t kPrefetchAhead = 2;  // copies, of which the first lines are loaded
constexpr size_t kPrefetchBytes = 4096, kCacheLine = 64;

// Of copies this large, what is written is not read soon: past the caches, which it would flush,
// and without loading first what it replaces.
constexpr size_t kStreamedBytes = 1024;

void CopyOne(const MappedCopy& copy) {
#ifdef __SSE2__
  constexpr size_t kVector = sizeof(__m128i);
  if (copy.bytes >= kStreamedBytes && reinterpret_cast<uintptr_t>(copy.to) % kVector == 0) {
    const auto* const from = reinterpret_cast<const __m128i*>(copy.from);
    auto* const to = reinterpret_cast<__m128i*>(copy.to);
    const size_t vectors = copy.bytes / kVector;
    for (size_t i = 0; i < vectors; ++i) _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    const size_t done = vectors * kVector;
    std::memcpy(copy.to + done, copy.from + done, copy.bytes - done);
    return;
  }
#endif
  std::memcpy(copy.to, copy.from, copy.bytes);
}

struct sigaction previous;

// Where the thread goes on when a page is not there. initial-exec: reading it must not allocate
// inside a signal handler.
thread_local sigjmp_buf* this_threads_way_out __attribute__((tls_model("initial-exec"))) = nullptr;

void OnBusError(int signal, siginfo_t* info, void*) {
  const bool is_fault = info->si_code > 0;  // and not sent by somebody
  if (is_fault && this_threads_way_out != nullptr) siglongjmp(*this_threads_way_out, 1);
  // Somebody else's: the instruction runs once more, or the signal is sent once more.
  sigaction(signal, &previous, nullptr);
  if (!is_fault) raise(signal);
}

void SurviveBusErrors() {
  static const bool is_installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0;
  }();
  (void)is_installed;
}

}  // namespace

MappedFile::~MappedFile() {
  MutexLock lock(&mu_);
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::Span<const std::byte> MappedFile::Get(int fd, int64_t size) const {
  MutexLock lock(&mu_);
  if (is_tried_ || size <= 0) return bytes_;
  is_tried_ = true;
  SurviveBusErrors();
  void* const memory =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) return bytes_;
  madvise(memory, static_cast<size_t>(size), MADV_RANDOM);  // records come in any order
  madvise(memory, static_cast<size_t>(size), MADV_DONTDUMP);
  bytes_ = {static_cast<const std::byte*>(memory), static_cast<size_t>(size)};
  return bytes_;
}

bool CopyMapped(absl::Span<const MappedCopy> copies) {
  sigjmp_buf way_out;
  if (sigsetjmp(way_out, /*savemask=*/1) != 0) {
    this_threads_way_out = nullptr;
    return false;
  }
  this_threads_way_out = &way_out;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  for (size_t i = 0; i < copies.size(); ++i) {
    if (i + kPrefetchAhead < copies.size()) {
      const MappedCopy& next = copies[i + kPrefetchAhead];
      for (size_t at = 0; at < std::min(next.bytes, kPrefetchBytes); at += kCacheLine)
        __builtin_prefetch(next.from + at);
    }
    CopyOne(copies[i]);
  }
#ifdef __SSE2__
  _mm_sfence();
#endif
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  this_threads_way_out = nullptr;
  return true;
}

}  // namespace feedwater::server
