// Where what a reader sees as one character ends: extended grapheme clusters (UAX #29), as the
// library unicode-segmentation 1.13 finds them, which tokenizers uses.
#pragma once

#include <cstdint>

namespace feedwater::server {

// Is given a text's characters one after the other.
class GraphemeBreaker {
 public:
  // Whether a cluster begins at `c`. True of the first one.
  bool BreaksBefore(int32_t c);

 private:
  // What the characters of this cluster may still take in.
  enum class Picture { kNone, kOpen, kJoined };   // a picture, then also a joiner
  enum class Conjunct { kNone, kOpen, kLinked };  // a consonant, then also a linker
  int before_ = -1;                               // class of the last one
  bool is_odd_flag_ = false;                      // an odd number of regional indicators so far
  Picture picture_ = Picture::kNone;
  Conjunct conjunct_ = Conjunct::kNone;
};

}  // namespace feedwater::server
