// The work of a decoder process: takes requests from the socket, makes samples in the region, and
// answers. Everything in the region is checked before it is used: whoever holds the other end may
// be mistaken, too.
#pragma once

#include "server/base/status.h"
#include "server/decoder/region.h"

namespace feedwater::server {

// Serves until the socket hangs up, and returns the process's exit status. `ready`: what went wrong
// before, which is then every answer.
int ServeDecoder(int socket, const Region& region, const absl::Status& ready);

}  // namespace feedwater::server
