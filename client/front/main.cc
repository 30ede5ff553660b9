// feedwater: the command line's first step. It says its version, and hands everything else over to
// feedwater-commands beside it. Shells, scripts and health checks ask for the version often; the
// commands load gRPC, OpenCV and 80 other libraries, which takes 25 ms of CPU before main, and this
// loads libc alone.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "feedwater/version.h"

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    if (printf("feedwater %s\n", feedwater::kFeedwaterVersion) > 0 && fflush(stdout) == 0) return 0;
    perror("feedwater: what it prints could not be written to stdout");
    return 1;
  }
  constexpr char kCommands[] = "feedwater-commands";
  char path[PATH_MAX + sizeof(kCommands)];
  const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
  size_t folder = length < 0 ? 0 : static_cast<size_t>(length);
  while (folder > 0 && path[folder - 1] != '/') --folder;
  memcpy(path + folder, kCommands, sizeof(kCommands));
  execv(path, argv);
  fprintf(stderr, "feedwater: cannot run %s: %s; it is installed beside feedwater\n", path,
          strerror(errno));
  return 1;
}
