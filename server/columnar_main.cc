// feedwater-columnar: the process in which a daemon unpacks a file of Arrow or Parquet. Started by
// feedwaterd alone, with a socket and the open file; columnar/README.md.
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

#include "server/columnar/serve.h"
#include "server/decoder/sandbox.h"

namespace feedwater::server {
namespace {

constexpr int kSocket = 3, kFile = 4;

int Main() {
  BecomeAlone(kFile + 1);
  prctl(PR_SET_NAME, "fw-columnar");
  WarmUpArrow();
  ColumnarRequest request;
  if (!ReadRequest(kSocket, &request)) return 1;
  const absl::Status sandbox = EnterSandbox(kSocket, request.memory_bytes, kFile);
  return ServeColumnar(kSocket, kFile, request, sandbox.ok());
}

}  // namespace
}  // namespace feedwater::server

int main(int argc, char**) {
  if (argc != 1 || isatty(0)) {
    std::fputs(
        "feedwater-columnar is started by feedwaterd (formats parquet and arrow), and does "
        "nothing without it\n",
        stderr);
    return 2;
  }
  // No destructors: whatever they would do, the sandbox may refuse it.
  _exit(feedwater::server::Main());
}
