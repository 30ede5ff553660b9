// How much faster than bare libjpeg-turbo the product decodes: whole images, and for training
// (random_resized_crop to 224, flip, normalise to float32 CHW) from JPEGs, with seek indexes, and
// from coefficient documents, by chroma sampling. One pinned thread; photo_set.h says how time is
// taken.
//
//   decode_kernels [FOLDER] [--rounds N] [--cpu N] [--target NAME] [--only NAME...] [--whole-set]
//                  [--progressive] [--json]
//
// FOLDER defaults to $FEEDWATER_TEST_DATA/photos. `--target AVX2` holds Highway to AVX2 and less.
// `--progressive` makes all photos progressive first, without loss, as jpegtran does it.
// `--json` prints {target, photos, index_share, sets: {SET: {VARIANT: {wall_us, cpu_us}}}}, an
// image.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "server/codec/jpeg/turbo_decoder.h"
#include "tests/bench/photo_set.h"
#include "tests/bench/simd_target.h"
#include "tests/codec/coefficient_images.h"
#include "tests/codec/seek_index_map.h"

namespace feedwater::bench {
namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

struct Options {
  std::string folder = std::getenv("FEEDWATER_TEST_DATA") != nullptr
                           ? std::string(std::getenv("FEEDWATER_TEST_DATA")) + "/photos"
                           : "../shared/data/photos";
  int rounds = 9, cpu = 0;
  std::string target;
  std::vector<std::string> only;
  bool whole_set = false, progressive = false, json = false;
};

const std::map<std::string, std::string> kMeanings = {
    {"bare", "libjpeg-turbo, whole image to RGB"},
    {"whole", "own decoder, whole image to RGB"},
    {"region", "libjpeg-turbo, the crop's region"},
    {"train", "crop, resize, flip, normalise"},
    {"seek", "the same with seek indexes"},
    {"store", "the same from a coefficient document"},
    {"first", "pack, then the same from the document"},
    {"pack", "JPEG to coefficient document"},
    {"resize", "resize, flip, normalise alone"},
};

// The document is what DecodeInto gets in place of the JPEG; the crop's pixels are what a resize
// alone starts with. Both are made before the clock runs.
struct Prepared {
  std::vector<std::byte> document;
  std::vector<uint8_t> crop;
};

// Leaves out what is neither gray nor YCbCr of the samplings that documents have.
void MakeProgressive(std::vector<Photo>* photos) {
  const auto cannot = [](Photo& photo) {
    server::testing::CoefficientReader reader;
    server::testing::CoefficientImage image;
    if (!reader.Read(photo.bytes.substr(0, photo.encoded_bytes), &image)) return true;
    photo.bytes = EncodeCoefficients(
        image, [](jpeg_compress_struct& jpeg) { jpeg_simple_progression(&jpeg); });
    photo.encoded_bytes = photo.bytes.size();
    photo.bytes.append(kReadPadding, '\0');
    return false;
  };
  photos->erase(std::remove_if(photos->begin(), photos->end(), cannot), photos->end());
}

int Main(const Options& options) {
  PinTo(options.cpu);
  if (!options.target.empty()) feedwater::testing::HoldToTarget(options.target.c_str());
  std::vector<Photo> photos = LoadPhotos(options.folder);
  if (options.progressive) MakeProgressive(&photos);
  const auto wanted = [&](const char* name) {
    return options.only.empty() ||
           std::find(options.only.begin(), options.only.end(), name) != options.only.end();
  };
  ImageWorkspace workspace;
  const ImageLimits limits;
  std::map<const Photo*, Prepared> prepared;
  size_t largest = size_t{kSide} * kSide * 3 * sizeof(float);
  for (const Photo& photo : photos) {
    Prepared& made = prepared[&photo];
    const Rect& crop = photo.geometry.crop;
    largest = std::max(largest, size_t{3} * photo.size.width * photo.size.height);
    if (wanted("store")) {
      const auto document = PackCoefficients(photo.encoded(), limits, workspace);
      const auto& from = document.empty() ? photo.encoded() : document;  // as the cache keeps it
      made.document.assign(from.begin(), from.end());
      made.document.resize(from.size() + kReadPadding);
    }
    if (wanted("resize")) {
      Geometry plain;
      plain.crop = crop;
      plain.scaled = {crop.width, crop.height};
      plain.window = {0, 0, crop.width, crop.height};
      made.crop.resize(size_t{3} * crop.width * crop.height);
      Check(DecodeInto(photo.encoded(), false, limits, plain, PixelFormat(),
                       reinterpret_cast<std::byte*>(made.crop.data()), workspace));
    }
  }

  server::testing::SeekIndexMap indexes;
  ImageWorkspace seeking;
  seeking.UseSeekIndexes(&indexes);
  for (const Photo& photo : photos) {
    if (wanted("seek")) MakeSeekIndex(photo.encoded(), limits, seeking);
  }

  const PixelFormat normalised = Normalised();
  std::vector<std::byte> out(largest);
  BareDecoder bare;
  TurboDecoder region;
  std::vector<Variant> variants;
  const auto add = [&](const char* name, std::function<void(Photo&)> run) {
    if (wanted(name)) variants.push_back({name, std::move(run)});
  };
  add("bare", [&](Photo& photo) { bare.Decode(photo); });
  add("whole", [&](Photo& photo) {
    Geometry whole;
    whole.crop = whole.window = {0, 0, photo.size.width, photo.size.height};
    whole.scaled = photo.size;
    Check(DecodeInto(photo.encoded(), false, limits, whole, PixelFormat(), out.data(), workspace));
  });
  add("region", [&](Photo& photo) {
    const uint8_t* rows[RowSource::kMaxRows];
    Check(region.Open(photo.encoded(), limits));
    Check(region.Start(photo.geometry.crop, 1));
    const int height = photo.geometry.crop.height;
    for (int y = 0; y < height; y += RowSource::kMaxRows)
      Check(region.Read(std::min(RowSource::kMaxRows, height - y), rows));
    region.Close();
  });
  add("train", [&](Photo& photo) {
    Check(DecodeInto(photo.encoded(), false, limits, photo.geometry, normalised, out.data(),
                     workspace));
  });
  add("seek", [&](Photo& photo) {
    Check(DecodeInto(photo.encoded(), false, limits, photo.geometry, normalised, out.data(),
                     seeking));
  });
  add("store", [&](Photo& photo) {
    const auto& document = prepared[&photo].document;
    Check(DecodeInto({document.data(), document.size() - kReadPadding}, false, limits,
                     photo.geometry, normalised, out.data(), workspace));
  });
  std::vector<std::byte> packed;
  add("first", [&](Photo& photo) {
    const auto made = PackCoefficients(photo.encoded(), limits, workspace);
    const auto& from = made.empty() ? photo.encoded() : made;
    packed.assign(from.begin(), from.end());
    packed.resize(from.size() + kReadPadding);
    Check(DecodeInto({packed.data(), packed.size() - kReadPadding}, false, limits, photo.geometry,
                     normalised, out.data(), workspace));
  });
  add("pack", [&](Photo& photo) { PackCoefficients(photo.encoded(), limits, workspace); });
  add("resize", [&](Photo& photo) {
    Geometry geometry = photo.geometry;
    geometry.crop.x = geometry.crop.y = 0;
    Check(ResampleInto(prepared[&photo].crop.data(), {geometry.crop.width, geometry.crop.height}, 3,
                       geometry, normalised, out.data(), workspace));
  });
  if (variants.empty()) {
    std::fprintf(stderr, "--only names no variant\n");
    return 2;
  }

  nlohmann::json document = {{"target", SimdTarget()}, {"photos", photos.size()}};
  if (wanted("seek")) {
    double jpeg_bytes = 0;
    for (const Photo& photo : photos) jpeg_bytes += static_cast<double>(photo.encoded_bytes);
    document["index_share"] = static_cast<double>(indexes.bytes()) / jpeg_bytes;
    if (!options.json)
      std::printf("seek indexes ÷ JPEG bytes: %.4f\n",
                  static_cast<double>(indexes.bytes()) / jpeg_bytes);
  }
  if (!options.json) std::printf("%zu photos, %s\n", photos.size(), SimdTarget().c_str());
  for (const auto& [name, group] : BySampling(photos)) {
    if (options.whole_set && name != "all") continue;
    MeasureByTurns(group, variants, options.rounds);
    const auto count = static_cast<double>(group.size());
    if (!options.json) std::printf("\n%s: %zu photos\n", name.c_str(), group.size());
    for (const Variant& v : variants) {
      document["sets"][name][v.name] = {{"wall_us", 1e6 * v.wall_s / count},
                                        {"cpu_us", 1e6 * v.cpu_s / count}};
      if (options.json) continue;
      std::printf("  %-8s %-38s %8.1f us CPU an image  %6.2fx\n", v.name.c_str(),
                  kMeanings.at(v.name).c_str(), 1e6 * v.cpu_s / count, variants[0].cpu_s / v.cpu_s);
    }
  }
  if (options.json) std::printf("%s\n", document.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace feedwater::bench

int main(int argc, char** argv) {
  using feedwater::bench::kMeanings;
  feedwater::bench::Options options;
  CLI::App app("Decoding for training beside libjpeg-turbo's whole decode.", "decode_kernels");
  app.add_option("FOLDER", options.folder, "Folder of photos")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Median of so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--cpu", options.cpu, "Run on this CPU")->capture_default_str();
  app.add_option("--target", options.target, "Highest SIMD target, such as AVX2");
  app.add_option("--only", options.only, "Variants to measure")->check(CLI::IsMember(kMeanings));
  app.add_flag("--whole-set", options.whole_set, "Not by sampling");
  app.add_flag("--progressive", options.progressive, "Make the photos progressive first");
  app.add_flag("--json", options.json, "One JSON document");
  CLI11_PARSE(app, argc, argv);
  return feedwater::bench::Main(options);
}
