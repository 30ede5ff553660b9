// feedwater-decoder: the process in which a daemon makes samples of isolated jobs. Started
// by feedwaterd alone, with a socket and the memory that both share; decoder/README.md.
#include <unistd.h>

#include <cstdio>

#include "server/decoder/decoder_program.h"
#include "server/decoder/region.h"
#include "server/decoder/sandbox.h"
#include "server/decoder/serve.h"
#include "server/graph/plan.h"
#include "server/graph/plugin_file.h"

namespace feedwater::server {
namespace {

// The smallest BMP: libraries that look around in the file system when the first image comes do so
// now.
constexpr uint8_t kOnePixel[] = {'B', 'M', 58, 0, 0, 0, 0, 0, 0,  0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0,
                                 0,   0,   1,  0, 0, 0, 1, 0, 24, 0, 0,  0, 0, 0, 4,  0, 0, 0, 0, 0,
                                 0,   0,   0,  0, 0, 0, 0, 0, 0,  0, 0,  0, 0, 0, 9,  9, 9, 0};

static_assert(sizeof(kOnePixel) == 58);

void WarmUp() {
  std::byte file[sizeof(kOnePixel) + 64] = {};
  for (size_t i = 0; i < sizeof(kOnePixel); ++i) file[i] = std::byte{kOnePixel[i]};
  Geometry geometry;
  geometry.crop = geometry.window = {0, 0, 1, 1};
  geometry.scaled = {1, 1};
  std::byte pixel[64];
  SampleWorkspace workspace;
  DecodeInto({file, sizeof(kOnePixel)}, true, ImageLimits(), geometry, PixelFormat(), pixel,
             workspace.images())
      .IgnoreError();
}

int Main() {
  BecomeAlone(kDecoderRegion + 1);
  absl::StatusOr<Region> region = Region::Open(kDecoderRegion);
  if (!region.ok()) return 1;
  region->CloseFile();
  WarmUp();
  const absl::Status loaded = LoadPluginsOfEnvironment();
  const absl::Status entered = EnterSandbox(kDecoderSocket, region->header().memory_bytes);
  return ServeDecoder(kDecoderSocket, *region, entered.ok() ? loaded : entered);
}

}  // namespace
}  // namespace feedwater::server

int main(int argc, char**) {
  if (argc != 1 || isatty(0)) {
    std::fputs(
        "feedwater-decoder is started by feedwaterd (isolation), and does nothing "
        "without it\n",
        stderr);
    return 2;
  }
  // No destructors: whatever they would do, the sandbox may refuse it.
  _exit(feedwater::server::Main());
}
