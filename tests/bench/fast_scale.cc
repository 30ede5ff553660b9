// What decode's fast_scale brings and what it costs in exactness: training (crop, resize, flip,
// normalise to float32 CHW) of large crops with and without it, from JPEGs, with seek indexes and
// from coefficient documents, and how far its uint8 pixels lie from those of the exact decode. One
// pinned thread; photo_set.h says how time is taken.
//
//   fast_scale [FOLDER] [--rounds N] [--cpu N] [--target NAME] [--sheets N]
//
// FOLDER (defaults to $FEEDWATER_TEST_DATA/photos) gives real photos, each with a random crop at
// least twice the target. Beside them stand sheets of 2000x1500 pixels, put together of drawn
// photos (tests/testing/photos), 4:4:4 and 4:2:0, that anyone can make again.
#include <CLI/CLI.hpp>
#include <cinttypes>

#include "tests/bench/photo_set.h"
#include "tests/bench/simd_target.h"
#include "tests/codec/seek_index_map.h"
#include "tests/testing/photos/photo_file.h"

namespace feedwater::bench {
namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

struct Options {
  std::string folder = std::getenv("FEEDWATER_TEST_DATA") != nullptr
                           ? std::string(std::getenv("FEEDWATER_TEST_DATA")) + "/photos"
                           : "../shared/data/photos";
  int rounds = 9, cpu = 0, sheets = 20;
  std::string target;
};

constexpr Size kSheet{2000, 1500};

// Drawn photos side by side, so that detail is as fine as in a photo of that size.
feedwater::testing::Photo DrawSheet(uint64_t number) {
  feedwater::testing::Painter painter;
  feedwater::testing::Photo sheet, photo;
  sheet.width = kSheet.width;
  sheet.height = kSheet.height;
  sheet.quality = 90;
  sheet.rgb.resize(size_t{3} * kSheet.width * kSheet.height);
  for (int y = 0, row_height = 0; y < kSheet.height; y += row_height) {
    row_height = kSheet.height;
    for (int x = 0; x < kSheet.width; x += photo.width) {
      painter.Paint(1, number, static_cast<int>(number % 20), &photo);
      ++number;
      row_height = std::min(row_height, photo.height);
      const size_t bytes = size_t{3} * std::min(photo.width, kSheet.width - x);
      for (int i = 0; i < std::min(photo.height, kSheet.height - y); ++i) {
        std::copy_n(&photo.rgb[size_t{3} * photo.width * i], bytes,
                    &sheet.rgb[3 * (static_cast<size_t>(y + i) * kSheet.width + x)]);
      }
    }
  }
  return sheet;
}

std::vector<Photo> DrawSheets(int count) {
  std::vector<Photo> sheets;
  for (int i = 0; i < count; ++i) {
    feedwater::testing::Photo sheet = DrawSheet(1000 * static_cast<uint64_t>(i));
    for (const auto sampling :
         {feedwater::testing::Photo::Sampling::k444, feedwater::testing::Photo::Sampling::k420}) {
      sheet.sampling = sampling;
      std::vector<uint8_t> bytes;
      Check(feedwater::testing::EncodeJpeg(sheet, &bytes));
      Photo photo;
      photo.bytes.assign(bytes.begin(), bytes.end());
      photo.encoded_bytes = bytes.size();
      photo.bytes.append(kReadPadding, '\0');
      photo.size = kSheet;
      photo.sampling = SamplingName(photo.scan_bytes());
      sheets.push_back(std::move(photo));
    }
  }
  return sheets;
}

// How far two outputs of uint8 lie apart.
struct Difference {
  double sum = 0, squares = 0, count = 0;
  int largest = 0;
  void Add(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      const int by = std::abs(a[i] - b[i]);
      sum += by;
      squares += by * by;
      largest = std::max(largest, by);
    }
    count += static_cast<double>(a.size());
  }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) { seeking_.UseSeekIndexes(&indexes_); }

  // All photos whose sizes allow a crop of at least twice `side`, by the scale they get.
  void Run(const std::string& name, std::vector<Photo>& photos, int side) {
    std::map<int, std::vector<Photo*>> by_scale;
    std::mt19937 random(1);
    for (Photo& photo : photos) {
      photo.geometry = Geometry();
      photo.geometry.scaled = {side, side};
      photo.geometry.window = {0, 0, side, side};
      for (int tries = 0; tries < 20; ++tries) {
        photo.geometry.crop = RandomResizedCrop(photo.size, random);
        const int least = std::min(photo.geometry.crop.width, photo.geometry.crop.height) / side;
        if (least < 2) continue;
        by_scale[least >= 8 ? 8 : least >= 4 ? 4 : 2].push_back(&photo);
        break;
      }
    }
    for (const auto& [scale, group] : by_scale) {
      if (group.size() >= 5) Measure(name, group, scale, side);
    }
  }

 private:
  void Measure(const std::string& name, const std::vector<Photo*>& group, int scale, int side) {
    std::map<const Photo*, std::vector<std::byte>> documents;
    const ImageLimits limits;
    Difference difference;
    std::vector<uint8_t> exact(size_t{3} * side * side), fast(exact.size());
    for (Photo* photo : group) {
      MakeSeekIndex(photo->encoded(), limits, seeking_);
      const auto packed = PackCoefficients(photo->encoded(), limits, workspace_);
      const auto& from = packed.empty() ? photo->encoded() : packed;
      documents[photo].assign(from.begin(), from.end());
      documents[photo].resize(from.size() + kReadPadding);
      for (const bool scaled : {false, true}) {
        Geometry geometry = photo->geometry;
        geometry.fast_scale = scaled;
        Check(DecodeInto(photo->encoded(), false, limits, geometry, PixelFormat(),
                         reinterpret_cast<std::byte*>((scaled ? fast : exact).data()), workspace_));
      }
      difference.Add(exact, fast);
    }
    const PixelFormat normalised = Normalised();
    std::vector<std::byte> out(size_t{3} * side * side * sizeof(float));
    std::vector<Variant> variants;
    for (const bool scaled : {false, true}) {
      const auto add = [&](const char* level, ImageWorkspace& workspace, bool packed) {
        variants.push_back(
            {level, [&, scaled, packed](Photo& photo) {
               Geometry geometry = photo.geometry;
               geometry.fast_scale = scaled;
               const auto& document = documents[&photo];
               Check(DecodeInto(
                   packed ? absl::MakeConstSpan(document).first(document.size() - kReadPadding)
                          : photo.encoded(),
                   false, limits, geometry, normalised, out.data(), workspace));
             }});
      };
      add("no index", workspace_, false);
      add("seek index", seeking_, false);
      add("coefficients", workspace_, true);
    }
    MeasureByTurns(group, variants, options_.rounds);
    const auto count = static_cast<double>(group.size());
    std::printf(
        "%-22s to %3d, at 1/%d, %3zu crops: pixels differ by %.2f in the mean, %.2f rms, %d "
        "at most\n",
        name.c_str(), side, scale, group.size(), difference.sum / difference.count,
        std::sqrt(difference.squares / difference.count), difference.largest);
    for (size_t i = 0; i < 3; ++i) {
      std::printf("    %-14s %8.0f us exact %8.0f us fast  %5.2fx\n", variants[i].name.c_str(),
                  1e6 * variants[i].cpu_s / count, 1e6 * variants[i + 3].cpu_s / count,
                  variants[i].cpu_s / variants[i + 3].cpu_s);
    }
  }

  const Options options_;
  server::testing::SeekIndexMap indexes_;
  ImageWorkspace workspace_, seeking_;
};

int Main(const Options& options) {
  PinTo(options.cpu);
  if (!options.target.empty()) feedwater::testing::HoldToTarget(options.target.c_str());
  std::printf("%s, CPU time an image; ratio: exact ÷ fast\n", SimdTarget().c_str());
  std::vector<Photo> photos = LoadPhotos(options.folder), sheets = DrawSheets(options.sheets);
  Bench bench(options);
  for (const int side : {112, 224}) {
    for (auto* set : {&photos, &sheets}) {
      for (const char* sampling : {"4:4:4", "4:2:0"}) {
        std::vector<Photo> some;
        std::copy_if(set->begin(), set->end(), std::back_inserter(some),
                     [&](const Photo& photo) { return photo.sampling == sampling; });
        bench.Run(std::string(set == &photos ? "real photos " : "2000x1500 ") + sampling, some,
                  side);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace feedwater::bench

int main(int argc, char** argv) {
  feedwater::bench::Options options;
  CLI::App app("What decode's fast_scale brings, and how far its pixels are from exact ones.",
               "fast_scale");
  app.add_option("FOLDER", options.folder, "Folder of real photos")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Median of so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--cpu", options.cpu, "Run on this CPU")->capture_default_str();
  app.add_option("--target", options.target, "Highest SIMD target, such as AVX2");
  app.add_option("--sheets", options.sheets, "Drawn sheets of each sampling")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return feedwater::bench::Main(options);
}
