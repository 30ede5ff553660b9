// A short sequence of changes that look at one pixel at a time: of images of uint8 with one channel
// (grey) or three (RGB), with Pillow's arithmetic (point_arithmetic.h). Ops append steps; then the
// program runs in as few passes over the image as there can be: a new one begins only where a step
// has to know something of the whole image first (its mean, its histograms), and the pass before
// gathers that. A pass works in blocks that stay in the core's own cache.
//
// One program per worker thread, used again for every sample; once warm it allocates nothing.
//
//   program.Begin(3);
//   program.Saturate(1.2f);
//   program.Contrast(0.8f);
//   FW_RETURN_IF_ERROR(program.Run(pixels, count, out, clock));
//
// or, where something else goes over the image anyway, as a RowEdit of every pass:
//
//   for (program.Start(); ; program.NextPass()) { <Edit for all pixels>; if (program.IsLast())
//   break; }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/base/work_clock.h"
#include "server/codec/row_edit.h"
#include "server/imaging/point_kernels.h"

namespace feedwater::server {

using ByteTable = std::array<uint8_t, 256>;
using ByteTables = std::array<ByteTable, 3>;  // by channel

class PointProgram : public RowEdit {
 public:
  PointProgram();

  // Forgets all steps. REQUIRES: channels is 1 or 3.
  void Begin(int channels);
  int channels() const { return channels_; }  // of what comes out of the steps so far

  // Steps. Those that are about colours change nothing where there is one channel.
  void Blend(int base, float factor);      // ImageEnhance.Brightness is Blend(0, factor)
  void Contrast(float factor);             // ImageEnhance.Contrast
  void Saturate(float factor);             // ImageEnhance.Color
  void ShiftHue(uint8_t shift);            // torchvision's adjust_hue: shift is int(turns * 255)
  void Change(const kernels::Bits& bits);  // ImageOps.invert, posterize and solarize
  void LookUp(const ByteTable& table);
  void LookUp(const ByteTables& tables);  // REQUIRES: channels() is 3
  void Equalize();                        // ImageOps.equalize
  void AutoContrast();                    // ImageOps.autocontrast
  void Grey(int channels);                // Image.convert("L"), as 1 channel or 3 equal ones
  void Permute(const std::array<uint8_t, 3>& from);  // channel c is what from[c] was
  enum class ColorSpace { kHsv, kYcbcr, kLab };
  void Convert(ColorSpace space);  // REQUIRES: channels() is 3

  bool is_empty() const { return steps_.empty(); }
  bool is_one_pass() const;

  // Changes `count` pixels at `pixels` to those at `out`, which may be the same place, and has room
  // for what any step makes of them. An error is the clock's.
  absl::Status Run(const uint8_t* pixels, int64_t count, uint8_t* out, WorkClock& clock);

  // The passes one by one. Edit and EditPixels do the one under way.
  void Start();
  bool IsLast() const { return pass_end_ == steps_.size(); }
  void NextPass();
  int InputChannels() const;                        // of the pass under way
  int OutputChannels(int channels) const override;  // of the same
  void Edit(uint8_t* planes, size_t plane, size_t count) override;
  absl::Status EditPixels(const uint8_t* pixels, int64_t count, uint8_t* out, WorkClock& clock);

 private:
  enum class Kind : uint8_t {
    kTables,  // of one table for all channels, or three
    kSaturate,
    kShiftHue,
    kGrey,
    kPermute,
    kConvert,
    // Those that need to know the image. NextPass makes tables of them.
    kContrast,
    kEqualize,
    kAutoContrast,
  };
  // How a table for all channels can be had without looking up.
  enum class Form : uint8_t { kLookUp, kLine, kBits };
  struct Step {
    Kind kind = Kind::kTables;
    Form form = Form::kLookUp;
    bool by_line = false;  // saturate
    uint8_t tables = 1;    // 1 or 3
    uint8_t channels = 3;  // of what goes in
    uint8_t result = 3;    // of what comes out
    uint8_t shift = 0;
    std::array<uint8_t, 3> from{};
    ColorSpace space{};
    float factor = 1;
    kernels::Line line;
    kernels::Bits bits;
    ByteTables table;
  };
  // What the pass under way has seen, for the step behind it.
  struct Seen {
    uint64_t pixels = 0, luma = 0;
    std::array<uint8_t, 3> low{}, high{};
    // Eight counts for each value, since neighbours are often equal and would wait for each other.
    uint32_t counts[3][8][256];
  };

  static bool NeedsImage(Kind kind) { return kind >= Kind::kContrast; }
  Step& Add(Kind kind);
  void AddTable(Step* step);  // or composes it with the one before
  void BlendStep(int base, float factor, Step* step) const;
  void StartPass(size_t begin);
  void Gather(const uint8_t* planes, size_t plane, size_t count);
  void EqualizeStep(Step* step) const;
  void AutoContrastStep(Step* step) const;
  void Apply(const Step& step, uint8_t* planes, size_t plane, size_t count) const;
  void ApplyTable(const Step& step, int channel, const uint8_t* in, size_t count,
                  uint8_t* out) const;
  void EditFlat(const uint8_t* values, size_t count, uint8_t* out) const;
  // Of planes of a block's size; how far apart they are afterwards: 0 where all are the first one.
  size_t EditBlock(uint8_t* planes, size_t count);

  std::vector<Step> steps_;
  int channels_ = 3;
  size_t pass_begin_ = 0, pass_end_ = 0;
  bool is_flat_ = false;  // the pass takes all values alike
  const kernels::PointTable* kernels_ = nullptr;
  std::unique_ptr<Seen> seen_;
};

}  // namespace feedwater::server
