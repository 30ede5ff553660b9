// Calls on files and folders, and the watching of them.
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/faults/fault_injection.h"

using feedwater::faults::Fails;
using feedwater::faults::Hit;
using feedwater::faults::Next;
using feedwater::faults::Rule;
using feedwater::faults::Shortened;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  NEXT(open);
  return Fails({"open", CALLER, -1, path}) ? -1 : next(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  NEXT(openat);
  return Fails({"open", CALLER, -1, path}) ? -1 : next(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return Fails({"fopen", CALLER, -1, path}) ? nullptr : next(path, mode);
}

ssize_t pread(int fd, void* into, size_t bytes, off_t offset) {
  NEXT(pread);
  const Rule* rule = Hit({"read", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, into, Shortened(rule, bytes), offset);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  NEXT(pwrite);
  const Rule* rule = Hit({"write", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, from, Shortened(rule, bytes), offset);
}

ssize_t write(int fd, const void* from, size_t bytes) {
  NEXT(write);
  const Rule* rule = Hit({"write", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, from, Shortened(rule, bytes));
}

int fsync(int fd) {
  NEXT(fsync);
  return Fails({"fsync", CALLER, fd}) ? -1 : next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  return Fails({"rename", CALLER, -1, to}) ? -1 : next(from, to);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return Fails({"mkdir", CALLER, -1, path}) ? -1 : next(path, mode);
}

int flock(int fd, int operation) {
  NEXT(flock);
  return Fails({"flock", CALLER, fd}) ? -1 : next(fd, operation);
}

int fstat(int fd, struct stat* info) {
  NEXT(fstat);
  return Fails({"fstat", CALLER, fd}) ? -1 : next(fd, info);
}

int fstatat(int folder, const char* path, struct stat* info, int flags) {
  NEXT(fstatat);
  return Fails({"fstatat", CALLER, -1, path}) ? -1 : next(folder, path, info, flags);
}

struct dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return Fails({"readdir", CALLER, dirfd(folder)}) ? nullptr : next(folder);
}

int posix_fadvise(int fd, off_t offset, off_t bytes, int advice) {
  NEXT(posix_fadvise);
  const Rule* rule = Hit({"posix_fadvise", CALLER, fd});
  return Fails(rule) ? static_cast<int>(rule->error) : next(fd, offset, bytes, advice);
}

int inotify_init1(int flags) noexcept {
  NEXT(inotify_init1);
  return Fails({"inotify_init1", CALLER}) ? -1 : next(flags);
}

int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
  NEXT(inotify_add_watch);
  return Fails({"inotify_add_watch", CALLER, -1, path}) ? -1 : next(fd, path, mask);
}

}  // extern "C"
