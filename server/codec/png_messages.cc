#include "server/codec/png_messages.h"

#include <png.h>

#include <algorithm>
#include <cstring>

namespace feedwater::server {
namespace {

thread_local char last_error[128];

// Ends in libpng's longjmp, so nothing with a destructor may live here.
[[noreturn]] void KeepError(png_structp png, png_const_charp message) {
  const size_t length = std::min(strlen(message), sizeof(last_error) - 1);
  memcpy(last_error, message, length);
  last_error[length] = '\0';
  png_longjmp(png, 1);
}

void DropWarning(png_structp, png_const_charp) {}

}  // namespace

std::string TakePngError() {
  std::string message = last_error;
  last_error[0] = '\0';
  return message;
}

}  // namespace feedwater::server

// Takes the place of libpng's own for OpenCV, which gives no handlers: the dynamic linker asks the
// program before its libraries. Whoever gives handlers keeps them.
extern "C" __attribute__((visibility("default"))) png_structp png_create_read_struct(
    png_const_charp version, png_voidp error_pointer, png_error_ptr error, png_error_ptr warning) {
  return png_create_read_struct_2(
      version, error_pointer, error != nullptr ? error : feedwater::server::KeepError,
      warning != nullptr ? warning : feedwater::server::DropWarning, nullptr, nullptr, nullptr);
}
