// What all readers of JPEGs by libjpeg-turbo share: a decompressor of bytes in memory whose errors,
// warnings and limits end the image by a jump out of the library.
//
// Verdict on damage: a warning is an error, but for those after which pixels and coefficients are
// still what the encoder meant. The bytes may end early only where the library merely looks ahead.
//
// Use: functions that call the library begin with `if (setjmp(jump)) return false;`, have no object
// with a destructor, and read no local variable after the jump; ToStatus() then says why. One
// reader reads one image at a time: a fresh jpeg_decompress_struct is made per image on purpose,
// because in a reused one the tables of the last image would stand in for tables that this image
// lacks. Not thread-safe.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>

// libjpeg's headers need stdio first and are C.
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/codec/decode_clock.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

struct LibjpegReader {
  enum class Failure { kDamaged, kNoMemory, kTooLarge, kTooManyScans, kTooSlow };

  LibjpegReader() = default;
  ~LibjpegReader() { Close(); }
  LibjpegReader(const LibjpegReader&) = delete;
  LibjpegReader& operator=(const LibjpegReader&) = delete;

  // Frees what the image took, and starts the next one's clock.
  void Begin(const ImageLimits& image_limits);
  void Close();  // allowed in any state
  // Why the library was left by a jump.
  absl::Status ToStatus() const;

  // These may jump. REQUIRES: setjmp(jump) in the caller, and Begin before it.
  // Makes the decompressor and reads the headers. `encoded` must stay until Close.
  void ReadHeader(absl::Span<const std::byte> encoded);
  void CheckPixels();
  // After jpeg_read_coefficients: whether a decode would show just those. Not where it would smooth
  // over what a progressive file leaves out, or would stop behind the first of several scans.
  bool DecodesTheseCoefficients();
  void CheckTime();
  [[noreturn]] void Fail(Failure reason);

  // The reader whose decompressor this is, or whose compressor: `client_data` of either.
  static LibjpegReader& Of(j_common_ptr common) {
    return *static_cast<LibjpegReader*>(common->client_data);
  }

  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  std::jmp_buf jump;
  ImageLimits limits;
  DecodeClock clock;
  // Whether it is damage when the library asks for more bytes than there are. Otherwise it gets an
  // end marker: the bit reader looks ahead and may ask for bytes that no pixel needs. If one does
  // need them, the library meets the marker and warns.
  bool needs_end = false;
  bool keeps_markers = false;  // those of applications and comments, in jpeg.marker_list

 private:
  static void OnError(j_common_ptr common);
  static void OnMessage(j_common_ptr common, int level);
  static void OnProgress(j_common_ptr common);
  static boolean FillSource(j_decompress_ptr jpeg);
  static void SkipSource(j_decompress_ptr jpeg, long bytes);

  jpeg_source_mgr source_;
  jpeg_progress_mgr progress_;
  char message_[JMSG_LENGTH_MAX] = "";
  Failure failure_ = Failure::kDamaged;
  unsigned progress_calls_ = 0;
  bool is_open_ = false;
};

}  // namespace feedwater::server
