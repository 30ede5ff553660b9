// What proves an unpacked file to be what was written: beside FILE stands .FILE.seal with the
// digest of its content and with its size, inode and times. While those are as they were the
// content is not read again; where they are not, the digest decides.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

std::string SealPath(const std::string& file);

// Writes the seal of a file that has not got its name yet. `digest`: Digest's, of AddPart alone.
// Aborted: somebody else is writing it.
absl::Status SealUnnamed(const std::string& file, absl::string_view digest);
// And once it has it, so that its content need not be read again. `unnamed`: what it was before.
void SealNamed(const std::string& file, absl::string_view digest, const struct stat& unnamed);

// What the sealed file is. `reads_all`: reads the content in any case. NotFound: it is not there,
// has no seal, cannot be read, or is not what was sealed; Unavailable: somebody goes on changing
// its times. `goes_on` is asked now and then.
absl::StatusOr<struct stat> ProveSealed(const std::string& file, bool reads_all,
                                        const std::function<absl::Status()>& goes_on);

}  // namespace feedwater::server
