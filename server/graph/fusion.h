// Finds ops that one call of the codec can carry out together: a decode or some pixels, then ops
// that move them, then ops that change their colours, then ops that change how they are stored.
// What may be fused is asked of the ops (op.h), and only what gives exactly the same bytes is.
#pragma once

#include <vector>

#include "server/graph/dataflow.h"

namespace feedwater::server {

struct FusedRun {
  std::vector<int> nodes;    // each reads what the one before it writes; one node that could not be
                             // fused, or several
  PixelFormat format;        // what the pixel ops of a run of several do together
  int channels = 3;          // of the pixels before point ops change them
  bool has_points = false;   // point ops among them,
  bool needs_image = false;  // and whether one of these has to know the whole image first
};

// The nodes for which `among` is true in runs, in an order in which they can be carried out. With
// `fuse` false every run has one node.
std::vector<FusedRun> FindRuns(const Dataflow& flow, const std::vector<bool>& among, bool fuse);

}  // namespace feedwater::server
