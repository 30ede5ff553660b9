// The Huffman decoder of baseline scans: MCUs to coefficients. Blocks that nobody wants are passed
// over, which costs a little less than decoding them. Two rows of MCUs whose beginnings are known
// are decoded at once: decoding one is a chain in which each code waits for the one before it, and
// the core has room for a second.
//
// Whatever is out of the ordinary (a code that does not exist, a run beyond the block, data that
// ends early or has a marker in it) makes it give up; libjpeg-turbo then has the word. Any bytes
// are safe. One object serves one thread, image after image; it allocates only while images grow.
#pragma once

#include <vector>

#include "server/codec/jpeg/entropy_kernels.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/jpeg/huffman_table.h"
#include "server/codec/jpeg/scan_cursor.h"

namespace feedwater::server::jpeg {

class EntropyDecoder {
 public:
  // Makes the tables ready. kNone, or why the scan is not covered.
  Uncovered Start(const JpegFrame& frame);

  // MCUs [first, end) of a row of MCUs. False: give up.
  bool Decode(ScanCursor& cursor, int first, int end, const WantedMcuRow& wanted) const {
    return ActiveEntropyKernels().decode(codes_, cursor, first, end, wanted);
  }
  // So many MCUs that nobody wants.
  bool Skip(ScanCursor& cursor, int mcus) const;

  // A row that begins some MCUs early.
  struct EarlyRow {
    ScanCursor* cursor;
    int early;
    const WantedMcuRow* wanted;
  };
  // MCUs [first, end) of two rows, and those before them, at once.
  bool DecodeBoth(const EarlyRow& a, const EarlyRow& b, int first, int end);

 private:
  void MakeSteps(int early, int first, int end);

  EntropyCodes codes_;
  HuffmanTable dc_[kMaxComponents], ac_[kMaxComponents];
  // Of MCUs [first_step_, end_step_), and early_steps_ before them.
  std::vector<BlockStep> steps_;
  int early_steps_ = 0, first_step_ = 0, end_step_ = 0;
};

}  // namespace feedwater::server::jpeg
