// Which file systems can hang: those of a network or of a program. Told by the mount's type,
// without asking the file system itself, which may be the one that does not answer. Thread-safe.
#pragma once

namespace feedwater::server {

// Whether calls into the file system of this open file end for certain as soon as a device of this
// machine answers. False where that is not known.
bool IsLocalMount(int fd);

}  // namespace feedwater::server
