// Files that appear whole or not at all. Everything that the daemon or a command saves under a name
// goes through here; what grows by appending (the cache's journal and segments) proves each entry
// instead.
//
// The bytes go into .NAME.new beside the file and reach the disk (fsync) before that name is
// changed into the file's (rename), and then the folder does. After a crash or a power cut there is
// the old file or the new one, and at most one unfinished file, which the next save writes over.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// Replaces `path` by a file of these parts, one after the other. `mode` is a new file's, less the
// umask. Aborted when another process is saving the same file at this moment. A failure leaves the
// old file as it was and no unfinished one, but for that of the folder's fsync, the last step.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& parts, unsigned mode = 0600);
// The same for what `write` writes to the descriptor.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(int fd)> write,
                                 unsigned mode = 0600);

// Writes everything, whatever the kernel takes at a time.
absl::Status WriteAll(int fd, absl::string_view bytes);

}  // namespace feedwater::server
