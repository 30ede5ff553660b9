#include "server/imaging/point_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/base/status.h"
#include "server/codec/plane_kernels.h"
#include "server/imaging/color_space.h"
#include "server/imaging/point_arithmetic.h"

namespace feedwater::server {
namespace {

using kernels::Bits;
using kernels::Line;

constexpr size_t kBlockPixels = 1024;
constexpr size_t kBlockPlane = kBlockPixels + kernels::kPointPadding;
constexpr size_t kFlatBytes = 16 << 10;
constexpr int64_t kPixelsBetweenLooks = 1 << 18;

struct Block {
  alignas(64) uint8_t planes[3 * kBlockPlane];
};

// Fractions of 16 bits near `slope`, the nearest first.
std::array<int, 4> FractionsOf(double slope, int whole) {
  const int below = static_cast<int>(std::floor((slope - whole) * 65536));
  return {below + 1, below, below + 2, below - 1};
}

constexpr float kSteepest = 100;  // a line's results must fit 16 bits

// The line through the table, which is one of about this slope, cut off at both ends.
bool FindLine(const ByteTable& table, float slope, Line* line) {
  if (!(slope < kSteepest)) return false;
  const int whole = static_cast<int>(std::lround(slope));
  for (const int fraction : FractionsOf(slope, whole)) {
    if (fraction != static_cast<int16_t>(fraction)) continue;
    int64_t low = INT32_MIN, high = INT32_MAX;
    for (int v = 0; v < 256; ++v) {
      const int64_t without = v * (static_cast<int64_t>(whole) * 65536 + fraction);
      if (table[v] > 0) low = std::max(low, table[v] * int64_t{65536} - without);
      if (table[v] < 255) high = std::min(high, table[v] * int64_t{65536} + 65535 - without);
    }
    if (low > high) continue;
    const int64_t even = (low + 65535) & ~int64_t{65535};  // costs less
    *line = {static_cast<int16_t>(whole), static_cast<int16_t>(fraction),
             static_cast<int32_t>(even <= high ? even : low)};
    return true;
  }
  return false;
}

// The line that gives, added to grey, what float32 arithmetic does, for all differences.
bool FindSaturationLine(float factor, Line* line) {
  if (!(factor < kSteepest)) return false;
  const int whole = static_cast<int>(std::lround(factor));
  for (const int fraction : FractionsOf(factor, whole)) {
    if (fraction != static_cast<int16_t>(fraction)) continue;
    bool is_same = true;
    for (int d = -255; d <= 255 && is_same; ++d) {
      const double exact = factor * static_cast<float>(d), below = std::floor(exact);
      // So near below a whole number, the sum with grey may be rounded up to it.
      is_same = exact - below < 1 - 1.0 / 32768 &&
                d * whole + ((d * fraction) >> 16) == static_cast<int>(below);
    }
    if (!is_same) continue;
    *line = {static_cast<int16_t>(whole), static_cast<int16_t>(fraction), 0};
    return true;
  }
  return false;
}

void Count(const uint8_t* values, size_t count, uint32_t (*counts)[256]) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, values + i, 8);
    for (int k = 0; k < 8; ++k) ++counts[k][eight >> (8 * k) & 255];
  }
  for (; i < count; ++i) ++counts[0][values[i]];
}

}  // namespace

PointProgram::PointProgram() : seen_(std::make_unique<Seen>()) { steps_.reserve(16); }

void PointProgram::Begin(int channels) {
  steps_.clear();
  channels_ = channels;
  kernels_ = &kernels::Points();
  pass_begin_ = pass_end_ = 0;
}

PointProgram::Step& PointProgram::Add(Kind kind) {
  Step& step = steps_.emplace_back();
  step.kind = kind;
  step.channels = step.result = static_cast<uint8_t>(channels_);
  return step;
}

void PointProgram::AddTable(Step* step) {
  if (steps_.size() < 2) return;
  Step& before = steps_[steps_.size() - 2];
  if (before.kind != Kind::kTables) return;
  // Two of the other forms cost less than a look-up, unless the CPU has one for it.
  if (!kernels_->fast_look_up && step->form != Form::kLookUp && before.form != Form::kLookUp)
    return;
  const int tables = std::max(before.tables, step->tables);
  for (int c = tables - 1; c >= 0; --c) {
    const ByteTable& first = before.table[before.tables == 1 ? 0 : c];
    const ByteTable& second = step->table[step->tables == 1 ? 0 : c];
    ByteTable both;
    for (int v = 0; v < 256; ++v) both[v] = second[first[v]];
    before.table[c] = both;
  }
  before.tables = static_cast<uint8_t>(tables);
  before.form = Form::kLookUp;
  steps_.pop_back();
}

void PointProgram::BlendStep(int base, float factor, Step* step) const {
  step->kind = Kind::kTables;
  step->tables = 1;
  for (int v = 0; v < 256; ++v) step->table[0][v] = pillow::Blend(base, v, factor);
  step->form = !kernels_->fast_look_up && FindLine(step->table[0], factor, &step->line)
                   ? Form::kLine
                   : Form::kLookUp;
}

void PointProgram::Blend(int base, float factor) {
  Step& step = Add(Kind::kTables);
  BlendStep(base, factor, &step);
  AddTable(&step);
}

void PointProgram::Change(const Bits& bits) {
  Step& step = Add(Kind::kTables);
  for (int v = 0; v < 256; ++v) step.table[0][v] = bits.At(v);
  step.bits = bits;
  step.form = Form::kBits;
  AddTable(&step);
}

void PointProgram::LookUp(const ByteTable& table) {
  Step& step = Add(Kind::kTables);
  step.table[0] = table;
  AddTable(&step);
}

void PointProgram::LookUp(const ByteTables& tables) {
  Step& step = Add(Kind::kTables);
  step.table = tables;
  step.tables = 3;
  AddTable(&step);
}

void PointProgram::Saturate(float factor) {
  if (channels_ != 3) return;
  Step& step = Add(Kind::kSaturate);
  step.factor = factor;
  step.by_line = FindSaturationLine(factor, &step.line);
}

void PointProgram::ShiftHue(uint8_t shift) {
  if (channels_ == 3) Add(Kind::kShiftHue).shift = shift;
}

void PointProgram::Contrast(float factor) { Add(Kind::kContrast).factor = factor; }
void PointProgram::Equalize() { Add(Kind::kEqualize); }
void PointProgram::AutoContrast() { Add(Kind::kAutoContrast); }

void PointProgram::Grey(int channels) {
  if (channels_ == channels && channels == 1) return;
  Add(Kind::kGrey).result = static_cast<uint8_t>(channels);
  channels_ = channels;
}

void PointProgram::Permute(const std::array<uint8_t, 3>& from) {
  if (channels_ == 3) Add(Kind::kPermute).from = from;
}

void PointProgram::Convert(ColorSpace space) { Add(Kind::kConvert).space = space; }

bool PointProgram::is_one_pass() const {
  return std::none_of(steps_.begin(), steps_.end(),
                      [](const Step& step) { return NeedsImage(step.kind); });
}

void PointProgram::Start() { StartPass(0); }

void PointProgram::StartPass(size_t begin) {
  pass_begin_ = pass_end_ = begin;
  is_flat_ = true;
  for (; !IsLast() && !NeedsImage(steps_[pass_end_].kind); ++pass_end_) {
    const Step& step = steps_[pass_end_];
    is_flat_ &= step.kind == Kind::kTables && (step.tables == 1 || step.channels == 1);
  }
  if (IsLast()) return;
  seen_->pixels = seen_->luma = 0;
  seen_->low.fill(255);
  seen_->high.fill(0);
  if (steps_[pass_end_].kind == Kind::kEqualize)
    std::memset(seen_->counts, 0, sizeof(seen_->counts));
}

void PointProgram::NextPass() {
  Step& step = steps_[pass_end_];
  switch (step.kind) {
    case Kind::kContrast: {
      const double pixels = static_cast<double>(std::max<uint64_t>(1, seen_->pixels));
      BlendStep(static_cast<int>(static_cast<double>(seen_->luma) / pixels + 0.5), step.factor,
                &step);
      break;
    }
    case Kind::kEqualize:
      EqualizeStep(&step);
      break;
    default:
      AutoContrastStep(&step);
      break;
  }
  StartPass(pass_end_);
}

void PointProgram::EqualizeStep(Step* step) const {
  step->kind = Kind::kTables;
  step->form = Form::kLookUp;
  step->tables = step->channels;
  for (int c = 0; c < step->channels; ++c) {
    std::array<uint32_t, 256> counts;
    int values = 0, last = 0;
    for (int v = 0; v < 256; ++v) {
      counts[v] = 0;
      for (const uint32_t(&some)[256] : seen_->counts[c]) counts[v] += some[v];
      if (counts[v] == 0) continue;
      ++values;
      last = v;
    }
    const uint64_t size = values > 1 ? (seen_->pixels - counts[last]) / 255 : 0;
    uint64_t below = size / 2;
    for (int v = 0; v < 256; ++v) {
      step->table[c][v] = static_cast<uint8_t>(size == 0 ? static_cast<uint64_t>(v)
                                                         : std::min<uint64_t>(255, below / size));
      below += counts[v];
    }
  }
}

void PointProgram::AutoContrastStep(Step* step) const {
  step->kind = Kind::kTables;
  step->form = Form::kLookUp;
  step->tables = step->channels;
  for (int c = 0; c < step->channels; ++c) {
    const int low = seen_->low[c], high = seen_->high[c];
    const double scale = high > low ? 255.0 / (high - low) : 1,
                 offset = high > low ? -low * scale : 0;
    for (int v = 0; v < 256; ++v) {
      step->table[c][v] =
          static_cast<uint8_t>(std::clamp(static_cast<int>(v * scale + offset), 0, 255));
    }
  }
}

void PointProgram::Gather(const uint8_t* planes, size_t plane, size_t count) {
  if (IsLast()) return;
  const Step& step = steps_[pass_end_];
  seen_->pixels += count;
  if (step.kind == Kind::kContrast) {
    if (step.channels == 1) {
      seen_->luma += kernels_->sum(planes, count);
    } else {
      alignas(64) uint8_t luma[kBlockPlane];
      kernels_->luma(planes, plane, count, luma);
      seen_->luma += kernels_->sum(luma, count);
    }
    return;
  }
  for (int c = 0; c < step.channels; ++c) {
    if (step.kind == Kind::kEqualize) {
      Count(planes + c * plane, count, seen_->counts[c]);
    } else {
      kernels_->extremes(planes + c * plane, count, &seen_->low[c], &seen_->high[c]);
    }
  }
}

void PointProgram::ApplyTable(const Step& step, int channel, const uint8_t* in, size_t count,
                              uint8_t* out) const {
  switch (step.form) {
    case Form::kLookUp:
      return kernels_->look_up(step.table[step.tables == 1 ? 0 : channel].data(), in, count, out);
    case Form::kLine:
      return kernels_->line(step.line, in, count, out);
    case Form::kBits:
      return kernels_->bits(step.bits, in, count, out);
  }
}

void PointProgram::Apply(const Step& step, uint8_t* planes, size_t plane, size_t count) const {
  switch (step.kind) {
    case Kind::kTables:
      for (int c = 0; c < step.channels; ++c)
        ApplyTable(step, c, planes + c * plane, count, planes + c * plane);
      return;
    case Kind::kSaturate:
      if (step.by_line) return kernels_->saturate_by_line(step.line, planes, plane, count);
      return kernels_->saturate(step.factor, planes, plane, count);
    case Kind::kShiftHue:
      return kernels_->shift_hue(step.shift, planes, plane, count);
    case Kind::kGrey:
      if (step.channels == 3) kernels_->luma(planes, plane, count, planes);
      return;
    case Kind::kPermute: {
      Block copy;
      for (int c = 0; c < 3; ++c)
        std::memcpy(copy.planes + c * kBlockPlane, planes + c * plane, count);
      for (int c = 0; c < 3; ++c)
        std::memcpy(planes + c * plane, copy.planes + step.from[c] * kBlockPlane, count);
      return;
    }
    case Kind::kConvert:
      if (step.space == ColorSpace::kHsv) return kernels_->to_hsv(planes, plane, count);
      if (step.space == ColorSpace::kYcbcr) return ToYcbcr(planes, plane, count);
      return ToLab(planes, plane, count);
    case Kind::kContrast:
    case Kind::kEqualize:
    case Kind::kAutoContrast:
      return;  // are tables by now
  }
}

size_t PointProgram::EditBlock(uint8_t* planes, size_t count) {
  size_t plane = kBlockPlane;
  for (size_t s = pass_begin_; s < pass_end_; ++s) {
    if (plane == 0) {
      plane = kBlockPlane;
      for (int c = 1; c < steps_[s].channels; ++c) std::memcpy(planes + c * plane, planes, count);
    }
    Apply(steps_[s], planes, plane, count);
    if (steps_[s].kind == Kind::kGrey) plane = 0;
  }
  Gather(planes, plane, count);
  return plane;
}

void PointProgram::EditFlat(const uint8_t* values, size_t count, uint8_t* out) const {
  for (size_t s = pass_begin_; s < pass_end_; ++s) {
    ApplyTable(steps_[s], 0, values, count, out);
    values = out;
  }
}

int PointProgram::InputChannels() const {
  return pass_begin_ < steps_.size() ? steps_[pass_begin_].channels : channels_;
}

int PointProgram::OutputChannels(int) const {
  return pass_end_ > pass_begin_ ? steps_[pass_end_ - 1].result : InputChannels();
}

void PointProgram::Edit(uint8_t* planes, size_t plane, size_t count) {
  const int in = InputChannels();
  if (is_flat_ && IsLast()) {
    for (int c = 0; c < in; ++c) EditFlat(planes + c * plane, count, planes + c * plane);
    return;
  }
  const int result = OutputChannels(in);
  Block block;
  for (size_t at = 0; at < count; at += kBlockPixels) {
    const size_t pixels = std::min(kBlockPixels, count - at);
    for (int c = 0; c < in; ++c)
      std::memcpy(block.planes + c * kBlockPlane, planes + c * plane + at, pixels);
    const size_t made = EditBlock(block.planes, pixels);
    for (int c = 0; c < result; ++c)
      std::memcpy(planes + c * plane + at, block.planes + c * made, pixels);
  }
}

absl::Status PointProgram::EditPixels(const uint8_t* pixels, int64_t count, uint8_t* out,
                                      WorkClock& clock) {
  const int in = InputChannels(), result = OutputChannels(in);
  const kernels::PlaneTable& rows = kernels::Planes();
  Block block;
  while (count > 0) {
    const int64_t some = std::min(count, kPixelsBetweenLooks);
    if (is_flat_ && IsLast()) {
      const size_t bytes = static_cast<size_t>(some) * in;
      for (size_t at = 0; at < bytes; at += kFlatBytes)
        EditFlat(pixels + at, std::min(kFlatBytes, bytes - at), out + at);
    } else {
      for (int64_t at = 0; at < some; at += kBlockPixels) {
        const size_t size = static_cast<size_t>(std::min<int64_t>(kBlockPixels, some - at));
        // The next block comes from far caches while this one is changed.
        if (at + 2 * static_cast<int64_t>(kBlockPixels) <= some) {
          const uint8_t* next = pixels + in * (at + static_cast<int64_t>(kBlockPixels));
          for (size_t line = 0; line < in * kBlockPixels; line += 64)
            __builtin_prefetch(next + line);
        }
        if (in == 3) {
          rows.deinterleave3(pixels + 3 * at, size, kBlockPlane, block.planes);
        } else {
          std::memcpy(block.planes, pixels + at, size);
        }
        const size_t plane = EditBlock(block.planes, size);
        if (out == nullptr) continue;
        if (result == 3) {
          rows.interleave3_u8(block.planes, plane, size, out + 3 * at);
        } else {
          std::memcpy(out + at, block.planes, size);
        }
      }
    }
    count -= some;
    pixels += some * in;
    if (out != nullptr) out += some * result;
    FW_RETURN_IF_ERROR(clock.Check());
  }
  return absl::OkStatus();
}

absl::Status PointProgram::Run(const uint8_t* pixels, int64_t count, uint8_t* out,
                               WorkClock& clock) {
  const int in = steps_.empty() ? channels_ : steps_[0].channels;
  const uint8_t* from = pixels;
  for (Start();; NextPass()) {
    // A pass that only looks writes nothing.
    const bool changes = pass_begin_ != pass_end_;
    if (changes || !IsLast())
      FW_RETURN_IF_ERROR(EditPixels(from, count, changes ? out : nullptr, clock));
    if (changes) from = out;
    if (IsLast()) break;
  }
  if (from != out) std::memcpy(out, from, static_cast<size_t>(count) * in);
  return absl::OkStatus();
}

}  // namespace feedwater::server
