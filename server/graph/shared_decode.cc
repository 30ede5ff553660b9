#include "server/graph/shared_decode.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/graph/plan_impl.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

// Decoders work on whole blocks, of 8 or 16 pixels.
int64_t CostOf(Rect part) {
  constexpr int64_t kBlock = 16;
  return (part.width + kBlock) * (part.height + kBlock);
}

Rect Around(Rect a, Rect b) {
  const int x = std::min(a.x, b.x), y = std::min(a.y, b.y);
  return {x, y, std::max(a.x + a.width, b.x + b.width) - x,
          std::max(a.y + a.height, b.y + b.height) - y};
}

// What may be done to pixels of which only a part is there, or that are decoded just then: a copy
// that OpenCV resamples would have to fit beside the decoder.
bool MovesPixels(const Step& step) {
  bool moves = false, copies = false;
  for (const Step::Part& part : step.parts) {
    const GeometryOp* const op = part.op->AsGeometry();
    moves |= op != nullptr;
    copies |= op != nullptr && op->ResamplesByCopy(0);
  }
  return step.in.size() == 1 && step.out.size() == 1 && moves && !copies;
}

}  // namespace

Rect PartToDecode(Size size, absl::Span<const Rect> parts, bool any_part) {
  if (parts.empty()) return WholeOf(size);
  Rect around = parts[0];
  int64_t apart = 0;
  for (const Rect& part : parts) {
    around = Around(around, part);
    apart += CostOf(part);
  }
  return any_part && apart < CostOf(around) ? Rect{} : around;
}

void ShareDecodes(const Dataflow& flow, Program* program) {
  std::vector<Step>& steps = program->steps;
  for (size_t s = 0; s < steps.size(); ++s) {
    Step& decode = steps[s];
    if (decode.parts.size() != 1 || decode.parts[0].op->AsDecode() == nullptr) continue;
    // The file stays where it is until the last part is decoded, if it is the record's own.
    const int image = decode.out[0];
    const ValuePlace& place = program->places[image];
    if (flow.values[decode.in[0]].source < 0 || place.is_kept || place.batch_value >= 0) continue;
    std::vector<int> views;
    bool all_move = true;
    for (size_t reader = s + 1; reader < steps.size(); ++reader) {
      const std::vector<int>& in = steps[reader].in;
      if (std::find(in.begin(), in.end(), image) == in.end()) continue;
      all_move &= MovesPixels(steps[reader]);
      views.push_back(static_cast<int>(reader));
    }
    if (views.size() < 2 || !all_move) continue;
    for (const int view : views) steps[view].shared_decode = static_cast<int>(s);
    decode.views = std::move(views);
  }
}

}  // namespace feedwater::server
