// FLAC's frames, one after the other, before libFLAC decodes them, which compares nothing of what
// the stream info says with them.
#pragma once

#include "absl/status/status.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {

// InvalidArgument: a frame that is damaged or missing, one of another rate, number of channels or
// of bits than the stream info in file.head says, or more or fewer samples in all than it promises.
// A frame may leave rate and bits to the stream info; then nothing shows that it is wrong. Takes
// time in proportion to the file's length, and no memory. REQUIRES: `file` is from ReadFlac.
absl::Status CheckFlacFrames(const AudioFile& file);

}  // namespace feedwater::server
