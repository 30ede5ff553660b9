#include "server/base/printed.h"

#include <cerrno>
#include <iostream>

#include "server/base/status.h"

namespace feedwater::server {

int ExitStatusOfPrinting(absl::string_view program, int exit_status) {
  errno = 0;
  std::cout.flush();
  const int error = errno;
  if (std::cout) return exit_status;
  constexpr const char* kLost = "what it prints could not be written to stdout";
  std::cerr << program << ": " << (error == 0 ? kLost : ErrnoStatus(error, kLost).message())
            << std::endl;
  return exit_status == 0 ? 1 : exit_status;
}

}  // namespace feedwater::server
