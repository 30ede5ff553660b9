// How much memory one sample takes while it is made, beside the record's bytes and its places in
// the batch: fields between ops, the scratch of ops, decoders' buffers. What the plan knows is the
// same for every sample and known when the plan is made; images of unknown size are counted when
// their headers are there (Plan::NeedOf), and with max_pixels before. So are texts, boxes and
// whatever else differs from record to record, of their own size; before, with an op's bound for
// them, or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/tensor.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

// The halves of a plan that a sample goes through: Plan::Run, Plan::RunFromPrefix, or both halves
// with what a cache keeps in between.
enum class SampleWay { kWhole, kFromPrefix, kKeeping };

struct SampleMemory {
  struct Term {
    std::string what;  // "resize#3", "decode#1+resize#2", "decoders of decode#1"
    int64_t bytes = 0;
    int64_t fixed = 0;  // of them, what every sample takes; the rest is for the largest images
  };
  std::vector<Term> terms;  // the largest first
  int64_t fixed = 0;        // of all
  int64_t most = 0;
  bool depends_on_record = false;  // its images and texts: what a sample takes is known with them
  // Of the largest inputs and outputs that a program of the user's is given and gives. They are
  // held once more where a decoder process makes the sample; not part of the sums above.
  struct Calls {
    int64_t inputs = 0, outputs = 0;
    bool are_open = false;  // the record tells: these are bounds
    int64_t bytes() const { return inputs + outputs; }
  };
  Calls calls;

  // What is set aside for every sample: what is fixed, and room for small images and the rows that
  // are under way.
  int64_t Claim() const { return fixed + (depends_on_record ? kImageBytes : kOtherBytes); }
  static constexpr int64_t kImageBytes = 16 << 20, kOtherBytes = 1 << 20;

  // "resize#3 103.0 MiB + resize#4 103.0 MiB + 38 more 3.8 GiB = 4.0 GiB"
  std::string Sum() const;
};

// A value, as far as its size is known.
struct SizedValue {
  TensorSpec spec;
  int64_t most = 0;  // bytes
  // Not every sample has as many; and what only the record tells is 0 until it is there.
  bool is_bound = false;
};

// Of one sample, from its images' headers.
struct SampleNeed {
  int64_t bytes = 0;
  int64_t calls = 0;  // as SampleMemory::calls
  Size largest;       // of its images; empty where there is none
};

// What a worker that reuses its buffers must have room for.
struct BufferNeeds {
  std::vector<int64_t> buffers;  // by number
  int64_t scratch = 0;
  std::vector<int64_t> spares;               // by number
  int64_t decoders = 0, rows = 0, jpeg = 0;  // of the codec
  int64_t copies = 0;                        // of what a cache keeps
  SampleMemory::Calls calls;                 // beside the total
  int64_t codec() const { return decoders + rows + jpeg; }
  int64_t Total() const;
};

}  // namespace feedwater::server
