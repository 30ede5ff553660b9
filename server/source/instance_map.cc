#include "server/source/instance_map.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// pycocotools draws an outline at five times its size.
constexpr double kScale = 5;

void PutNumber(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

void PutChunk(const char* name, const std::string& content, std::string* out) {
  PutNumber(static_cast<uint32_t>(content.size()), out);
  const size_t begin = out->size();
  out->append(name);
  out->append(content);
  const auto* bytes = reinterpret_cast<const Bytef*>(out->data() + begin);
  PutNumber(static_cast<uint32_t>(crc32(0, bytes, static_cast<uInt>(out->size() - begin))), out);
}

// Runs of equal bytes are nearly all that there is, and are all that is looked for.
absl::StatusOr<std::string> Deflated(const std::vector<uint8_t>& bytes) {
  z_stream stream = {};
  constexpr int kLevel = 1, kWindowBits = 15, kMemoryLevel = 8;
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_RLE) != Z_OK)
    return absl::ResourceExhaustedError("no memory to compress a mask");
  std::string out;
  char piece[16 << 10];
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  int state = Z_OK;
  while (state == Z_OK && out.size() <= InstanceMap::kMaxPngBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof(piece);
    state = deflate(&stream, Z_FINISH);
    out.append(piece, sizeof(piece) - stream.avail_out);
  }
  deflateEnd(&stream);
  if (state == Z_OK) {
    return absl::InvalidArgumentError(absl::StrCat("the image's mask would take more than ",
                                                   InstanceMap::kMaxPngBytes >> 20,
                                                   " MiB: its instances are noise"));
  }
  if (state != Z_STREAM_END) return absl::InternalError("a mask cannot be compressed");
  return out;
}

// A line between two points of the enlarged outline, every step along its longer side.
class Line {
 public:
  Line(int x0, int y0, int x1, int y1) : dx_(std::abs(x1 - x0)), dy_(std::abs(y1 - y0)) {
    is_flipped_ = (dx_ >= dy_ && x0 > x1) || (dx_ < dy_ && y0 > y1);
    if (is_flipped_) std::swap(x0, x1), std::swap(y0, y1);
    x_ = x0, y_ = y0;
    // Of a line that is one point this is no number, and is multiplied by 0.
    slope_ = dx_ >= dy_ ? static_cast<double>(y1 - y0) / dx_ : static_cast<double>(x1 - x0) / dy_;
  }
  int steps() const { return std::max(dx_, dy_) + 1; }
  void At(int step, int* x, int* y) const {
    const int t = is_flipped_ ? steps() - 1 - step : step;
    const double along = steps() == 1 ? 0 : slope_ * t;
    if (dx_ >= dy_) {
      *x = x_ + t;
      *y = static_cast<int>(y_ + along + .5);
    } else {
      *y = y_ + t;
      *x = static_cast<int>(x_ + along + .5);
    }
  }

 private:
  const int dx_, dy_;
  bool is_flipped_ = false;
  int x_ = 0, y_ = 0;
  double slope_ = 0;
};

int Enlarged(double coordinate) { return static_cast<int>(kScale * coordinate + .5); }

}  // namespace

absl::Status InstanceMap::CheckSize(int64_t width, int64_t height) {
  if (width > 0 && height > 0 && width <= kMaxSide && height <= kMaxSide &&
      width * height <= kMaxPixels)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the image has ", width, "x", height, " pixels by its 'width' and 'height', and ",
      "masks are made of 1 to ", kMaxPixels, " pixels, at most ", kMaxSide, " to a side"));
}

void InstanceMap::Begin(int64_t width, int64_t height) {
  width_ = width;
  height_ = height;
  outlines_ = covered_ = 0;
  pixels_.assign(static_cast<size_t>(width * height), 0);
}

void InstanceMap::Cover(int64_t begin, int64_t end, uint8_t label) {
  if (begin >= end) return;
  covered_ += end - begin;
  if (covered_ <= kMaxCovered)
    std::memset(pixels_.data() + begin, label, static_cast<size_t>(end - begin));
}

absl::Status InstanceMap::CheckCovered() const {
  if (covered_ <= kMaxCovered) return absl::OkStatus();
  return absl::InvalidArgumentError("has polygons or runs that cover their image again and again");
}

absl::Status InstanceMap::CoverPolygon(absl::Span<const double> points, uint8_t label) {
  if (points.size() % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("has a polygon of ", points.size(),
                                                   " numbers, which are no pairs of x and y"));
  }
  for (const double coordinate : points) {
    if (!(std::abs(coordinate) <= static_cast<double>(kMaxCoordinate))) {
      return absl::InvalidArgumentError(absl::StrCat("has a polygon with the coordinate ",
                                                     coordinate, ", which is far off any image"));
    }
  }
  const size_t corners = points.size() / 2;
  if (corners < 3) return absl::OkStatus();  // nothing is within
  borders_.clear();
  int64_t length = 0;
  int last_x = 0, last_y = 0;
  bool is_first = true;
  for (size_t i = 0; i < corners; ++i) {
    const size_t next = (i + 1) % corners;
    const Line line(Enlarged(points[2 * i]), Enlarged(points[2 * i + 1]),
                    Enlarged(points[2 * next]), Enlarged(points[2 * next + 1]));
    length += line.steps();
    outlines_ += line.steps();
    if (length > kMaxOutline || outlines_ > kMaxOutlines)
      return absl::InvalidArgumentError("has polygons whose outlines are too long for any image");
    for (int step = 0; step < line.steps(); ++step) {
      int x = 0, y = 0;
      line.At(step, &x, &y);
      if (!is_first && x != last_x) {
        // Where the outline passes the middle of a column of pixels.
        const double column = ((x < last_x ? x : x - 1) + .5) / kScale - .5;
        if (std::floor(column) == column && column >= 0 &&
            column <= static_cast<double>(width_ - 1)) {
          const double row = (std::min(y, last_y) + .5) / kScale - .5;
          const double below = std::ceil(std::clamp(row, 0.0, static_cast<double>(height_)));
          borders_.push_back(static_cast<uint32_t>(static_cast<int64_t>(column) * height_ +
                                                   static_cast<int64_t>(below)));
        }
      }
      is_first = false;
      last_x = x, last_y = y;
    }
  }
  std::sort(borders_.begin(), borders_.end());
  for (size_t i = 0; i < borders_.size(); i += 2)
    Cover(borders_[i], i + 1 < borders_.size() ? borders_[i + 1] : width_ * height_, label);
  return CheckCovered();
}

absl::Status InstanceMap::CoverRuns(absl::Span<const int64_t> runs, uint8_t label) {
  const int64_t pixels = width_ * height_;
  int64_t sum = 0;
  for (const int64_t run : runs) {
    if (run < 0) return absl::InvalidArgumentError(absl::StrCat("has a run of ", run, " pixels"));
    if (run > pixels - sum) {
      sum = pixels + 1;
      break;
    }
    sum += run;
  }
  if (sum != pixels) {
    return absl::InvalidArgumentError(absl::StrCat("has runs of ", sum > pixels ? "more" : "fewer",
                                                   " than the ", pixels, " pixels of its image of ",
                                                   width_, "x", height_));
  }
  int64_t at = 0;
  for (size_t i = 0; i < runs.size(); at += runs[i++]) {
    if (i % 2 == 1) Cover(at, at + runs[i], label);
  }
  return CheckCovered();
}

absl::StatusOr<std::string> InstanceMap::Png() {
  // Rows as differences from those above them, which are nearly all 0.
  constexpr uint8_t kUp = 2;
  constexpr int64_t kBlock = 64;
  const int64_t stride = width_ + 1;
  rows_.resize(static_cast<size_t>(stride * height_));
  for (int64_t y = 0; y < height_; ++y) rows_[static_cast<size_t>(y * stride)] = kUp;
  for (int64_t y0 = 0; y0 < height_; y0 += kBlock) {
    for (int64_t x = 0; x < width_; ++x) {
      const uint8_t* column = pixels_.data() + x * height_;
      uint8_t above = y0 == 0 ? 0 : column[y0 - 1];
      for (int64_t y = y0; y < std::min(y0 + kBlock, height_); ++y) {
        rows_[static_cast<size_t>(y * stride + 1 + x)] = static_cast<uint8_t>(column[y] - above);
        above = column[y];
      }
    }
  }
  FW_ASSIGN_OR_RETURN(const std::string deflated, Deflated(rows_));
  std::string png = "\x89PNG\r\n\x1A\n";
  std::string header;
  PutNumber(static_cast<uint32_t>(width_), &header);
  PutNumber(static_cast<uint32_t>(height_), &header);
  header.append("\x08\0\0\0\0", 5);  // 8 bits, gray
  PutChunk("IHDR", header, &png);
  PutChunk("IDAT", deflated, &png);
  PutChunk("IEND", "", &png);
  return png;
}

}  // namespace feedwater::server
