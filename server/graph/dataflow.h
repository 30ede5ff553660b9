// A pipeline's graph with every name resolved: values, and the ops that turn some into others. A
// name that is written again means a new value from there on, so the text is read top to bottom and
// the graph has no cycle by construction.
//
// Behind the sample graph stands the batch graph in the same form: its values are fields of all
// samples of a batch. Every output of the pipeline is such a batch value, whether or not a batch op
// has touched it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct Value {
  std::string name;
  TensorSpec spec;
  int source =
      -1;  // place among the dataset's fields followed by Feedwater's own; -1: an op writes it
  int batch_value = -1;           // what it becomes when the batch needs it
  int length_value = -1;          // the batch value that is the number of its rows
  bool is_deterministic = false;  // the same for a record in every epoch
  std::vector<int> readers;       // live nodes
};

struct Node {
  const OpEntry* entry = nullptr;
  std::unique_ptr<Op> op;
  uint32_t instance = 0;     // the place in `graph`, dead ops counted
  uint32_t draws_as = 0;     // for draws
  std::vector<int> in, out;  // values
  bool is_live = false;      // something that the client receives depends on it
};

struct BatchValue {
  std::string name;
  TensorSpec spec;        // of one sample; static, but for the rows of a ragged output
  int sample_value = -1;  // -1: a batch op writes it
  // Of a sample's value whose number of rows varies, which only an output can be:
  int64_t max_rows = 0;      // of a ragged output: rows of a sample at most; 0: it is none
  std::string padding;       // else the bytes of the element that is put behind a sample's rows
  bool is_length = false;    // this is the number of its rows
  std::vector<int> readers;  // live batch nodes

  int64_t RowsAtMost() const { return max_rows > 0 ? max_rows : spec.shape[0]; }
};

struct BatchNode {
  const OpEntry* entry = nullptr;
  std::unique_ptr<BatchOp> op;
  uint32_t instance = 0;
  std::vector<int> in, out;  // batch values
  bool is_live = false;
};

struct Dataflow {
  std::vector<Value>
      values;  // sources first: the dataset's fields, then sample_id, position, is_real
  std::vector<Node> nodes;  // in the order of the file
  std::vector<BatchValue> batch_values;
  std::vector<BatchNode> batch_nodes;
  std::vector<int> outputs;  // batch values
};

// Fields that every dataset has, in the order of their values.
enum OwnField { kSampleId, kPosition, kIsReal, kOwnFields };

// Resolves names, settles every spec, marks what is live. InvalidArgument with the place of the
// mistake.
absl::StatusOr<Dataflow> Settle(const PipelineSpec& spec, const std::vector<FieldSpec>& fields,
                                int64_t classes, bool classes_are_known);

}  // namespace feedwater::server
