// Calls that give memory, and operator new.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "tests/faults/fault_injection.h"

using feedwater::faults::Fails;
using feedwater::faults::inside;
using feedwater::faults::Next;

extern "C" {

int memfd_create(const char* name, unsigned flags) noexcept {
  NEXT(memfd_create);
  return Fails({"memfd_create", CALLER, -1, name}) ? -1 : next(name, flags);
}

int ftruncate(int fd, off_t bytes) noexcept {
  NEXT(ftruncate);
  return Fails({"ftruncate", CALLER, fd}) ? -1 : next(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  NEXT(fallocate);
  return Fails({"fallocate", CALLER, fd}) ? -1 : next(fd, mode, offset, bytes);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (Fails({"mmap", CALLER, fd})) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

int madvise(void* at, size_t bytes, int advice) noexcept {
  NEXT(madvise);
  return Fails({"madvise", CALLER, -1, nullptr, advice}) ? -1 : next(at, bytes, advice);
}

long mbind(void* at, unsigned long bytes, int mode, const unsigned long* nodes,
           unsigned long max_node, unsigned flags) {
  using F = long(void*, unsigned long, int, const unsigned long*, unsigned long, unsigned);
  static auto* const next = Next<F>("mbind");
  return Fails({"mbind", CALLER}) ? -1 : next(at, bytes, mode, nodes, max_node, flags);
}

void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  NEXT(aligned_alloc);
  return Fails({"aligned_alloc", CALLER}) ? nullptr : next(alignment, bytes);
}

}  // extern "C"

namespace {

void* Allocate(size_t bytes, const void* caller) {
  if (!Fails({"new", caller})) {
    if (void* memory = malloc(bytes == 0 ? 1 : bytes)) return memory;
  }
  ++inside;  // the exception needs memory of its own
  struct Outside {
    ~Outside() { --inside; }
  } outside;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, CALLER); }
void* operator new[](size_t bytes) { return Allocate(bytes, CALLER); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
