#include "server/graph/fusion.h"

#include "server/graph/geometry_op.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

// A run being built: what it does so far, and so what may follow.
class RunBuilder {
 public:
  explicit RunBuilder(const Dataflow& flow) : flow_(flow) {}

  // Whether the run can begin with this node; if so it does.
  bool Begin(int index) {
    const Node& node = flow_.nodes[index];
    run_.nodes.push_back(index);
    if (node.in.size() != 1 || node.out.size() != 1) return false;
    const TensorSpec& input = flow_.values[node.in[0]].spec;
    if (const DecodeOp* decode = node.op->AsDecode()) {
      run_.channels = channels_ = ChannelsOf(decode->values());
      return true;
    }
    if (input.dtype != DType::kUInt8 || input.layout != Layout::kHWC) return false;
    run_.channels = channels_ = static_cast<int>(ChannelsOf(input));
    return Add(node);
  }

  bool Extend(int index) {
    const Node& node = flow_.nodes[index];
    if (node.in.size() != 1 || node.out.size() != 1 || !Add(node)) return false;
    run_.nodes.push_back(index);
    return true;
  }

  FusedRun Take() { return std::move(run_); }

 private:
  bool Add(const Node& node) {
    if (const GeometryOp* op = node.op->AsGeometry()) {
      // Resampling commutes with crops before it alone; padding needs pixels that are still
      // unconverted. Crops and flips may come anywhere but behind what looks at the whole image.
      const bool changes = converts_ || run_.has_points;
      if (op->resamples() && (resamples_ || flips_ || pads_ || changes)) return false;
      if (op->pads() && (pads_ || changes)) return false;
      if (run_.needs_image) return false;
      resamples_ |= op->resamples();
      flips_ |= op->flips();
      pads_ |= op->pads();
      return true;
    }
    if (const PointOp* op = node.op->AsPoint()) {
      // What has to know the whole image must see its padding too, which is drawn last.
      if (converts_ || (op->needs_image() && pads_)) return false;
      const int channels = op->OutputChannels(channels_);
      if (channels > channels_) return false;  // rows have no room for it
      channels_ = channels;
      run_.has_points = true;
      run_.needs_image |= op->needs_image();
      return true;
    }
    if (const PixelOp* op = node.op->AsPixel()) {
      if (!op->Compose(channels_, &run_.format)) return false;
      converts_ = true;
      return true;
    }
    return false;
  }

  const Dataflow& flow_;
  FusedRun run_;
  int channels_ = 0;
  bool resamples_ = false, flips_ = false, pads_ = false, converts_ = false;
};

}  // namespace

std::vector<FusedRun> FindRuns(const Dataflow& flow, const std::vector<bool>& among, bool fuse) {
  std::vector<FusedRun> runs;
  std::vector<bool> placed(flow.nodes.size());
  for (int i = 0; i < static_cast<int>(flow.nodes.size()); ++i) {
    if (placed[i] || !among[i]) continue;
    RunBuilder builder(flow);
    int last = i;
    placed[i] = true;
    bool can_grow = builder.Begin(i) && fuse;
    while (can_grow) {
      const Value& value = flow.values[flow.nodes[last].out[0]];
      // A field that the batch or several ops need must exist in memory.
      can_grow = value.batch_value < 0 && value.readers.size() == 1 && among[value.readers[0]] &&
                 builder.Extend(value.readers[0]);
      if (can_grow) placed[last = value.readers[0]] = true;
    }
    runs.push_back(builder.Take());
  }
  return runs;
}

}  // namespace feedwater::server
