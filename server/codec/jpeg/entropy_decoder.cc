#include "server/codec/jpeg/entropy_decoder.h"

#include <algorithm>

namespace feedwater::server::jpeg {
namespace {

bool SameCode(const HuffmanCode& a, const HuffmanCode& b) { return a.counts == b.counts; }

}  // namespace

Uncovered EntropyDecoder::Start(const JpegFrame& frame) {
  codes_.shape = frame.shape;
  early_steps_ = first_step_ = end_step_ = 0;
  for (int c = 0; c < frame.shape.components; ++c) {
    codes_.dc[c] = &dc_[c];
    codes_.ac[c] = &ac_[c];
    for (int other = 0; other < c; ++other) {  // both chroma components usually share theirs
      if (SameCode(frame.dc[c], frame.dc[other])) codes_.dc[c] = codes_.dc[other];
      if (SameCode(frame.ac[c], frame.ac[other])) codes_.ac[c] = codes_.ac[other];
    }
    if (codes_.dc[c] == &dc_[c] && !BuildDcTable(frame.dc[c], &dc_[c])) return Uncovered::kTables;
    if (codes_.ac[c] == &ac_[c] && !BuildAcTable(frame.ac[c], &ac_[c])) return Uncovered::kTables;
  }
  return Uncovered::kNone;
}

bool EntropyDecoder::Skip(ScanCursor& cursor, int mcus) const {
  static constexpr WantedMcuRow kNothing = {};
  return Decode(cursor, 0, mcus, kNothing);
}

void EntropyDecoder::MakeSteps(int early, int first, int end) {
  if (early <= early_steps_ && first == first_step_ && end == end_step_) return;
  early_steps_ = early;
  first_step_ = first;
  end_step_ = end;
  steps_.clear();
  const FrameShape& shape = codes_.shape;
  for (int mcu = first - early; mcu < end; ++mcu) {
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c]; ++v) {
        for (int h = 0; h < shape.h[c]; ++h) {
          const int column = mcu * shape.h[c] + h;
          steps_.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(v),
                            mcu < first ? BlockStep::kNoColumn : static_cast<uint16_t>(column)});
        }
      }
    }
  }
}

bool EntropyDecoder::DecodeBoth(const EarlyRow& a, const EarlyRow& b, int first, int end) {
  MakeSteps(std::max(a.early, b.early), first, end);
  const size_t mcus = static_cast<size_t>(early_steps_ + end - first);
  const size_t blocks = steps_.size() / mcus;  // an MCU
  const auto lane = [&](const EarlyRow& row) {
    const size_t late = static_cast<size_t>(early_steps_ - row.early);
    return EntropyLane{row.cursor, steps_.data() + late * blocks, row.wanted};
  };
  return ActiveEntropyKernels().decode_both(codes_, lane(a), lane(b),
                                            steps_.data() + steps_.size());
}

}  // namespace feedwater::server::jpeg
