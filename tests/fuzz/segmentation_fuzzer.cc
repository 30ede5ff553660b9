// A segmentation of COCO's: any bytes in place of the JSON value, or of a text of runs within it.
// What covers pixels gives the map the same bytes a second time, and the file of the map is read by
// the decoder that will read it.
//
//   input: the map's width and height, a byte each; a byte whose lowest bit says that what follows
//   is a text of runs
// LIBS: feedwater_source feedwater_codec
#include <nlohmann/json.hpp>

#include "server/codec/image.h"
#include "server/source/coco_segmentation.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

void Run(Input input) {
  Reader reader(input);
  const int width = 1 + reader.Byte(), height = 1 + reader.Byte();
  const bool is_text = reader.Byte() % 2 != 0;
  std::string json = AsText(reader.rest());
  if (is_text) {
    using Json = nlohmann::json;
    const Json runs = {{"size", {height, width}}, {"counts", json}};
    json = runs.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  static auto* used = new server::InstanceMap;
  server::InstanceMap fresh;
  used->Begin(width, height);
  fresh.Begin(width, height);
  const absl::Status once = server::CoverSegmentation(json, 7, used);
  const absl::Status again = server::CoverSegmentation(json, 7, &fresh);
  Require(once == again, "a used map gives the same verdict");
  Require(once.ok() || absl::IsInvalidArgument(once), "what is refused is invalid");
  if (!once.ok()) return;
  const auto png = used->Png();
  Require(png.ok() && *png == *fresh.Png(), "a used map gives the same file");
  server::ImageWorkspace workspace;
  std::vector<std::byte> pixels(static_cast<size_t>(width) * height);
  server::Geometry whole;
  whole.crop = whole.window = {0, 0, width, height};
  whole.scaled = {width, height};
  const absl::Status decoded = server::DecodeInto(
      {reinterpret_cast<const std::byte*>(png->data()), png->size()}, false, server::ImageLimits(),
      whole, server::PixelFormat(), pixels.data(), workspace, server::PixelValues::kIndices);
  Require(decoded.ok(), "the decoder reads the file");
  for (const std::byte pixel : pixels)
    Require(pixel == std::byte{0} || pixel == std::byte{7}, "no other label comes out");
}

std::vector<std::string> Seeds() {
  const std::string map = "\x1e\x16", list = map + '\0', text = map + '\1';
  return {list + "[[1,2,20,3,15.5,18]]",
          list + "[[0,0,31,0,31,23,0,23],[5,5,9,9,5,9]]",
          list + "[[-8.25,3,40,1e3,12,-7]]",
          list + R"({"size": [23, 31], "counts": [100, 20, 593]})",
          list + "[]",
          list + "null",
          text + "^22e00O10000O10001N10000O1000001N1000000O10001O0O15Kn1",
          text + "Yf0"};
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 1 << 12};
  return target;
}

}  // namespace feedwater::fuzz
