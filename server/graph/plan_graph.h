// A plan as a graph that can be drawn and walked: what Plan::Describe says in lines, as nodes and
// edges. For tools; nothing that runs samples reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/base/tensor.h"
#include "server/codec/image.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

struct PlanGraph {
  enum class Kind { kField, kOp, kBatchOp, kOutput };
  struct Node {
    Kind kind = Kind::kField;
    std::string name;  // of the dataset's field, the op, or the output
    Randomness randomness = Randomness::kNone;
    bool is_deterministic = false;  // the same for a record in every epoch, as far as this node
    bool is_in_prefix = false;      // an op before what a cache may keep (PlanPrefix)
    int place = -1;                 // of an op, in `graph` or `batch: graph`
    int pass = -1;  // of a sample op: those with the same number are carried out together
    // Of an op that changes how pixels are stored: what it does to uint8 pixels, such as mean and
    // std.
    std::optional<PixelFormat> pixels;
  };
  struct Edge {
    int from = 0, to = 0;            // nodes
    int from_port = 0, to_port = 0;  // which output, which input
    std::string field;
    TensorSpec spec;
  };
  // Fields that something reads, ops in the order in which they run, batch ops, outputs in the
  // pipeline's order. Ops that no output depends on are left out.
  std::vector<Node> nodes;
  std::vector<Edge> edges;
};

}  // namespace feedwater::server
