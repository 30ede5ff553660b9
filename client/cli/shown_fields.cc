#include "client/cli/shown_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/overlay.h"
#include "client/cli/picture.h"
#include "server/base/yaml.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"

namespace feedwater::cli {
namespace {

using server::FieldSpec;
using server::Layout;
using server::PlanGraph;
using server::TensorSpec;

constexpr int64_t kMostElements = 16;  // of a stack or a clip, evenly spread over it
constexpr int64_t kLeastSide = 5;      // of a heat map
constexpr int64_t kLeastWave = 256, kMostChannels = 8;

bool IsFloats(const TensorSpec& spec) { return server::IsFloating(spec.dtype); }
bool IsInteger(const TensorSpec& spec) {
  return !IsFloats(spec) && spec.dtype != server::DType::kBool;
}

// The spec of one element of a field that has an axis more; one that is nothing where it has not.
TensorSpec ElementSpec(const TensorSpec& spec) {
  TensorSpec element = spec;
  if (spec.shape.empty()) return element;
  element.shape.erase(element.shape.begin());
  if (spec.shape.size() == 4 && spec.layout == Layout::kPlain) {
    const auto may_be_channels = [](int64_t size) { return size == 1 || size == 3; };
    if (may_be_channels(spec.shape[3])) {
      element.layout = Layout::kHWC;
    } else if (may_be_channels(spec.shape[1])) {
      element.layout = Layout::kCHW;
    }
  }
  return element;
}

// What the elements of a stacked field are.
ShownAs ElementsShownAs(const FieldSpec& field) {
  if (!field.spec.IsStatic() || field.spec.shape.size() < 3 || field.spec.shape[0] < 1)
    return ShownAs::kNothing;
  const TensorSpec element = ElementSpec(field.spec);
  if (field.spec.shape.size() == 4 && IsPicture(element)) return ShownAs::kImage;
  const bool has_channels = field.spec.layout == Layout::kPlain && field.spec.shape.size() == 3 &&
                            field.spec.shape[0] <= kMostChannels;
  if (has_channels && ShownAsOf({"", element, ""}) == ShownAs::kHeatMap) return ShownAs::kHeatMap;
  return ShownAs::kNothing;
}

// A field of an op: the node and which of its inputs.
struct Port {
  int node = -1, port = 0;
  friend bool operator==(const Port& a, const Port& b) {
    return a.node == b.node && a.port == b.port;
  }
};

class Chooser {
 public:
  Chooser(const server::Plan& plan, const PlanGraph& graph) : outputs_(plan.outputs()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].kind == PlanGraph::Kind::kOutput)
        moves_.push_back(MovesOf(graph, static_cast<int>(i)));
    }
    moves_.resize(outputs_.size());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Role role = RoleOf(graph, i);
      roles_.push_back(Fits(role, outputs_[i].spec) ? role : Role::kNone);
    }
  }

  absl::StatusOr<std::vector<ShownField>> Choose(const std::vector<std::string>& names) {
    std::vector<std::string> known;
    std::vector<ShownField> shown;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      std::vector<ShownField> parts = Parts(i);
      if (parts.empty()) continue;
      known.push_back(outputs_[i].name);
      const bool is_wanted =
          names.empty() ? IsShownUnasked(i)
                        : std::find(names.begin(), names.end(), outputs_[i].name) != names.end();
      if (is_wanted) std::move(parts.begin(), parts.end(), std::back_inserter(shown));
    }
    for (const std::string& name : names) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--field: the pipeline has no output '", server::Printable(name),
          "' that can be shown: an image, a mask, a spectrogram, a waveform, text or numbers",
          server::Suggest(name, known)));
    }
    for (ShownField& field : shown) {
      if (field.as == ShownAs::kImage && field.element < 0) AddOverlays(&field);
    }
    return shown;
  }

 private:
  enum class Role { kNone, kImage, kMask, kBoxes, kKeypoints, kLabels };

  static bool IsJoint(const PlanGraph::Node& node) {
    if (node.kind != PlanGraph::Kind::kOp) return false;
    const auto* entry = server::Registry<server::OpEntry>::Get().Find(node.name);
    // A combinator takes the fields that its ops move together.
    return entry != nullptr && (entry->is_joint || entry->is_combinator());
  }

  // The joint ops that an output came through, the last one first.
  static std::vector<Port> MovesOf(const PlanGraph& graph, int node) {
    std::vector<Port> moves;
    int port = 0;
    for (size_t steps = 0; steps <= graph.nodes.size(); ++steps) {
      const PlanGraph::Edge* edge = EdgeInto(graph, node, port);
      if (edge == nullptr) break;
      node = edge->from;
      port = edge->from_port;
      if (IsJoint(graph.nodes[node])) moves.push_back({node, port});
    }
    return moves;
  }

  // By the last op that moved it together with others; by its type where none did.
  Role RoleOf(const PlanGraph& graph, size_t output) const {
    if (!moves_[output].empty()) {
      const Port last = moves_[output][0];
      std::vector<TensorSpec> specs;
      for (const PlanGraph::Edge& edge : graph.edges) {
        if (edge.to != last.node) continue;
        if (specs.size() <= static_cast<size_t>(edge.to_port))
          specs.resize(static_cast<size_t>(edge.to_port) + 1);
        specs[static_cast<size_t>(edge.to_port)] = edge.spec;
      }
      const auto roles = server::RolesOf(specs, {});
      if (roles.ok() && static_cast<size_t>(last.port) < roles->size()) {
        switch ((*roles)[static_cast<size_t>(last.port)]) {
          case server::FieldRole::kImage:
            return Role::kImage;
          case server::FieldRole::kMask:
            return Role::kMask;
          case server::FieldRole::kBoxes:
            return Role::kBoxes;
          case server::FieldRole::kKeypoints:
            return Role::kKeypoints;
          case server::FieldRole::kLabels:
            return Role::kLabels;
        }
      }
    }
    const FieldSpec& field = outputs_[output];
    if (IsBoxes(field.spec)) return Role::kBoxes;
    if (IsMask(field.spec)) return Role::kMask;
    const bool is_points = IsFloats(field.spec) && field.spec.shape.size() == 2 &&
                           (field.spec.shape[1] == 2 || field.spec.shape[1] == 3) &&
                           absl::StrContains(field.name, "point");
    if (is_points) return Role::kKeypoints;
    return IsPicture(field.spec) ? Role::kImage : Role::kNone;
  }

  // What ops behind the last one that moved it have made of it may be nothing to draw.
  static bool Fits(Role role, const TensorSpec& spec) {
    switch (role) {
      case Role::kImage:
        return IsPicture(spec);
      case Role::kMask:
        return IsMask(spec) ||
               (IsPicture(spec) && server::ChannelsOf(spec) == 1 && !IsFloats(spec));
      case Role::kBoxes:
        return IsBoxes(spec);
      case Role::kKeypoints:
        return IsFloats(spec) && spec.shape.size() == 2 &&
               (spec.shape[1] == 2 || spec.shape[1] == 3);
      case Role::kLabels:
      case Role::kNone:
        return true;
    }
    return true;
  }

  std::vector<ShownField> Parts(size_t output) const {
    const FieldSpec& field = outputs_[output];
    const ShownAs as = ShownAsOf(field);
    std::vector<ShownField> parts;
    if (as != ShownAs::kNothing) {
      parts.push_back({output, as, field.name});
      return parts;
    }
    const ShownAs elements = ElementsShownAs(field);
    if (elements == ShownAs::kNothing) return parts;
    const int64_t all = field.spec.shape[0], count = std::min(all, kMostElements);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t element = i * all / count;
      parts.push_back({output, elements, absl::StrCat(field.name, "[", element, "]"), element});
    }
    return parts;
  }

  bool HasImage() const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (roles_[i] == Role::kImage && IsPicture(outputs_[i].spec)) return true;
    }
    return false;
  }

  bool IsShownUnasked(size_t output) const {
    const FieldSpec& field = outputs_[output];
    const ShownAs as = ShownAsOf(field);
    if (field.name == "label" && as != ShownAs::kImage) return false;
    if (roles_[output] == Role::kBoxes || roles_[output] == Role::kKeypoints ||
        roles_[output] == Role::kLabels)
      return false;
    if (roles_[output] == Role::kMask) return ImagesOf(output).empty();
    if (field.spec.shape.size() != 1) return true;
    // Rows of boxes are no numbers to look at, and neither is what an image has beside it.
    const bool has_boxes = std::find(roles_.begin(), roles_.end(), Role::kBoxes) != roles_.end();
    return as == ShownAs::kText || !(has_boxes && HasImage());
  }

  // The images that a field belongs to: those that the last op that moved it moved along; where
  // none did, the only image that there is, or those of its size.
  std::vector<size_t> ImagesOf(size_t output) const {
    std::vector<size_t> images, all;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (roles_[i] != Role::kImage || !IsPicture(outputs_[i].spec)) continue;
      all.push_back(i);
      if (moves_[output].empty()) continue;
      const int last = moves_[output][0].node;
      if (std::any_of(moves_[i].begin(), moves_[i].end(),
                      [last](const Port& move) { return move.node == last; }))
        images.push_back(i);
    }
    if (!images.empty() || !moves_[output].empty()) return images;
    if (roles_[output] != Role::kMask) return all.size() == 1 ? all : images;
    for (size_t image : all) {
      if (MaskSizeOf(outputs_[output].spec) == server::ImageSizeOf(outputs_[image].spec))
        images.push_back(image);
    }
    return images;
  }

  void AddOverlays(ShownField* image) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const bool is_drawn =
          roles_[i] == Role::kMask || roles_[i] == Role::kBoxes || roles_[i] == Role::kKeypoints;
      if (i == image->output || !is_drawn) continue;
      const std::vector<size_t> images = ImagesOf(i);
      if (std::find(images.begin(), images.end(), image->output) == images.end()) continue;
      if (roles_[i] == Role::kMask) image->masks.push_back(i);
      if (roles_[i] == Role::kKeypoints) image->keypoints.push_back(i);
      if (roles_[i] != Role::kBoxes) continue;
      image->boxes.push_back(i);
      image->labels.push_back(LabelsOf(i));
    }
  }

  // The output that stands behind boxes where they were moved; else the first that may be it, one
  // whose name says so before others.
  int LabelsOf(size_t boxes) const {
    int found = -1;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!MayLabel(outputs_[boxes], outputs_[i])) continue;
      if (!moves_[boxes].empty()) {
        const Port behind{moves_[boxes][0].node, moves_[boxes][0].port + 1};
        if (!moves_[i].empty() && moves_[i][0] == behind) return static_cast<int>(i);
        continue;
      }
      const bool is_named = absl::StartsWith(outputs_[i].name, "label");
      if (found < 0 || is_named) found = static_cast<int>(i);
      if (is_named) break;
    }
    return found;
  }

  const std::vector<FieldSpec>& outputs_;
  std::vector<std::vector<Port>> moves_;  // by output
  std::vector<Role> roles_;               // by output
};

}  // namespace

bool IsBoxes(const TensorSpec& spec) {
  return IsFloats(spec) && spec.layout == Layout::kPlain && spec.shape.size() == 2 &&
         spec.shape[1] == 4;
}

bool IsMask(const TensorSpec& spec) {
  return !IsFloats(spec) && spec.layout == Layout::kPlain && spec.shape.size() == 2 &&
         spec.shape[0] > 1 && spec.shape[1] > 1;
}

bool MayLabel(const FieldSpec& boxes, const FieldSpec& labels) {
  return IsInteger(labels.spec) && labels.spec.layout == Layout::kPlain &&
         labels.spec.shape.size() == 1 && labels.spec.shape[0] == boxes.spec.shape[0];
}

ShownAs ShownAsOf(const FieldSpec& field) {
  const TensorSpec& spec = field.spec;
  if (IsPicture(spec)) return ShownAs::kImage;
  if (spec.layout != Layout::kPlain) return ShownAs::kNothing;
  const bool may_sound = IsFloats(spec) || spec.dtype == server::DType::kInt16;
  if (spec.shape.size() == 1) {
    if (spec.dtype == server::DType::kUInt8) return ShownAs::kText;
    const int64_t rows = std::max(spec.shape[0], field.max_rows);
    if (may_sound && rows >= kLeastWave) return ShownAs::kWave;
    return IsInteger(spec) && rows > 1 ? ShownAs::kNumbers : ShownAs::kNothing;
  }
  if (spec.shape.size() != 2 || IsBoxes(spec)) return ShownAs::kNothing;
  if (may_sound && spec.shape[0] > 0 && spec.shape[0] <= kMostChannels &&
      spec.shape[1] >= kLeastWave)
    return ShownAs::kWave;
  if (IsFloats(spec) && spec.shape[0] >= kLeastSide && spec.shape[1] >= kLeastSide)
    return ShownAs::kHeatMap;
  return IsMask(spec) ? ShownAs::kMask : ShownAs::kNothing;
}

server::Tensor ElementOf(const server::Tensor& tensor, int64_t element) {
  if (element < 0) return tensor;
  server::Tensor part{ElementSpec(tensor.spec), tensor.data};
  part.data += static_cast<size_t>(element) * part.bytes();
  return part;
}

absl::StatusOr<std::vector<ShownField>> ChooseShown(const server::Plan& plan,
                                                    const PlanGraph& graph,
                                                    const std::vector<std::string>& names) {
  return Chooser(plan, graph).Choose(names);
}

}  // namespace feedwater::cli
