#include "server/decoder/process_memory.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// A field of /proc/PID/statm, which counts pages.
int64_t Statm(pid_t pid, int field) {
  FILE* file = fopen(absl::StrCat("/proc/", pid, "/statm").c_str(), "re");
  if (file == nullptr) return 0;
  long long pages[6] = {};
  const int read = fscanf(file, "%lld %lld %lld %lld %lld %lld", &pages[0], &pages[1], &pages[2],
                          &pages[3], &pages[4], &pages[5]);
  fclose(file);
  return read == 6 ? pages[field] * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

int64_t MappedBytes(pid_t pid) { return Statm(pid, 0); }
int64_t DataBytes(pid_t pid) { return Statm(pid, 5); }

}  // namespace feedwater::server
