// What a sheet shows of one sample: an output as a cell, with what belongs to it drawn over it and
// said below it; and the record that it was made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/cli/contact_sheet.h"
#include "client/cli/lettering.h"
#include "client/cli/overlay.h"
#include "client/cli/shown_fields.h"
#include "server/graph/pipeline_spec.h"
#include "server/source/dataset.h"

namespace feedwater::cli {

class CellMaker {
 public:
  // The plan, its spec and the dataset outlive it. FailedPrecondition where no font is installed.
  static absl::StatusOr<CellMaker> Create(const server::Plan& plan,
                                          const server::PipelineSpec& spec,
                                          const server::Dataset& dataset, int side);

  // Fills in the picture or text of `cell` and adds captions and a footnote. `output` gives the
  // sample's outputs by number.
  void Show(const ShownField& field, absl::FunctionRef<server::Tensor(size_t)> output,
            SheetCell* cell) const;

  // Draws the record's own boxes and masks over its image, which has `size` and is in the cell
  // already.
  void ShowAnnotations(const server::Record& record, server::Size size, SheetCell* cell) const;
  // A record without an image: the first of its fields that can be shown.
  void ShowRecord(const server::Record& record, SheetCell* cell) const;

 private:
  CellMaker() = default;
  absl::Status Fill(const ShownField& field, absl::FunctionRef<server::Tensor(size_t)> output,
                    SheetCell* cell) const;
  void ShowPlain(ShownAs as, const server::Tensor& tensor, SheetCell* cell) const;
  std::optional<double> PaddingOf(size_t output) const;

  const server::Plan* plan_ = nullptr;
  const server::PipelineSpec* spec_ = nullptr;
  const server::Dataset* dataset_ = nullptr;
  int side_ = 0;
  server::PlanGraph graph_;
  std::unique_ptr<Lettering> lettering_;
  std::unique_ptr<Overlay> overlay_;
};

}  // namespace feedwater::cli
