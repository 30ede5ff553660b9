// Any bytes as a JPEG's markers and as the TIFF structure of its EXIF data: an orientation of 1..8
// comes out, the same whichever way it is read.
// LIBS: feedwater_codec
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/codec/jpeg/markers.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

// A JPEG of one pixel's header around the EXIF data.
std::string Around(absl::string_view tiff) {
  std::string file("\xff\xd8", 2);
  const size_t length = 2 + 6 + tiff.size();
  if (length <= 0xffff) {
    file += "\xff\xe1";
    file += static_cast<char>(length >> 8);
    file += static_cast<char>(length);
    file.append("Exif\0\0", 6);
    file.append(tiff.data(), tiff.size());
  }
  file.append("\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0", 23);
  return file;
}

absl::Span<const std::byte> Bytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void Run(Input input) {
  const std::string tiff = AsText(input);
  const int orientation = server::ReadExifOrientation(Bytes(tiff));
  Require(orientation >= 1 && orientation <= 8, "an orientation is 1 to 8");
  (void)server::ReadJpegHeader(Bytes(tiff));
  const auto header = server::ReadJpegHeader(Bytes(Around(tiff)));
  Require(header.ok(), "EXIF data never makes a JPEG unreadable");
  Require(header->orientation == orientation, "the orientation inside a JPEG");
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const bool little : {false, true}) {
    const auto number = [&](uint32_t value, int bytes) {
      std::string text;
      for (int i = 0; i < bytes; ++i)
        text += static_cast<char>(value >> 8 * (little ? i : bytes - 1 - i));
      return text;
    };
    for (uint32_t orientation = 0; orientation <= 9; ++orientation) {
      for (const int bytes : {1, 2, 4}) {  // types 1, 3 and 4
        const std::string other = number(0x10f, 2) + number(2, 2) + number(9, 4) + number(38, 4);
        const std::string entry = number(0x112, 2) + number(bytes == 1 ? 1 : 2 + bytes / 2, 2) +
                                  number(1, 4) + number(orientation, bytes) +
                                  std::string(static_cast<size_t>(4 - bytes), '\0');
        seeds.push_back(absl::StrCat(little ? "II" : "MM", number(42, 2), number(8, 4),
                                     number(2, 2), other, entry, number(0, 4), "feedwater"));
      }
    }
    seeds.push_back(Around(seeds.back()));
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 1024};
  return target;
}

}  // namespace feedwater::fuzz
