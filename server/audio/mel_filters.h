// Tables of mel spectrograms and MFCC, with torchaudio's and librosa's numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/audio/spectrum_kernels.h"

namespace feedwater::server {

enum class MelScale { kHtk, kSlaney };

struct MelSettings {
  int64_t sample_rate = 16000;
  int bins = 201;  // of the spectrum, from 0 to half of the rate
  int n_mels = 128;
  double f_min = 0, f_max = 8000;  // Hz
  MelScale scale = MelScale::kHtk;
  bool is_area_one = false;  // norm: slaney. Else the highest weight is one
};

// The triangles of a mel filter bank. Owns what matrix() points to.
class MelFilters {
 public:
  explicit MelFilters(const MelSettings& settings);
  kernels::BandedMatrix matrix() const;
  // A filter in which no bin lies gives nothing but zeros; -1: there is none.
  int first_empty() const { return first_empty_; }
  int64_t TableBytes() const { return static_cast<int64_t>(weights_.capacity() * sizeof(float)); }

 private:
  std::vector<int32_t> firsts_, counts_, starts_;
  std::vector<float> weights_;
  int first_empty_ = -1;
};

// Of the window that falls to zero at its begin alone (periodic), in the middle of `size` numbers.
std::vector<float> HannWindow(int length, int size);

// DCT-II of `rows` numbers, row by row: number m of coefficient c is at m * columns + c.
std::vector<float> CosineTransform(int rows, int columns, bool orthonormal);

}  // namespace feedwater::server
