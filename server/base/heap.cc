#include "server/base/heap.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>

namespace feedwater::server {

int64_t ResidentBytes() {
  FILE* file = fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long total = 0, resident = 0;
  int read = fscanf(file, "%lld %lld", &total, &resident);
  fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace feedwater::server
