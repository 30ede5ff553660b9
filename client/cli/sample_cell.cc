#include "client/cli/sample_cell.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/picture.h"
#include "client/cli/signal_picture.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/graph/joint_fields.h"

namespace feedwater::cli {
namespace {

using server::Tensor;

}  // namespace

absl::StatusOr<CellMaker> CellMaker::Create(const server::Plan& plan,
                                            const server::PipelineSpec& spec,
                                            const server::Dataset& dataset, int side) {
  CellMaker maker;
  maker.plan_ = &plan;
  maker.spec_ = &spec;
  maker.dataset_ = &dataset;
  maker.side_ = side;
  maker.graph_ = plan.Graph();
  FW_ASSIGN_OR_RETURN(Lettering lettering, Lettering::Create());
  maker.lettering_ = std::make_unique<Lettering>(std::move(lettering));
  maker.overlay_ = std::make_unique<Overlay>(*maker.lettering_, dataset.classes());
  return maker;
}

// What stands behind a sample's rows in an output of fixed size; nothing where nothing does.
std::optional<double> CellMaker::PaddingOf(size_t output) const {
  const std::string& name = plan_->outputs()[output].name;
  for (const server::OutputSpec& spec : spec_->outputs) {
    if (spec.name == name && spec.pad_to.has_value()) return spec.pad_value;
  }
  return std::nullopt;
}

void CellMaker::Show(const ShownField& field, absl::FunctionRef<Tensor(size_t)> output,
                     SheetCell* cell) const {
  // Whatever OpenCV throws is this cell's problem.
  const absl::Status shown = server::NoThrow([&] { return Fill(field, output, cell); });
  if (!shown.ok()) cell->problem = std::string(shown.message());
}

absl::Status CellMaker::Fill(const ShownField& field, absl::FunctionRef<Tensor(size_t)> output,
                             SheetCell* cell) const {
  const Tensor tensor = ElementOf(output(field.output), field.element);
  if (field.as != ShownAs::kImage) {
    ShowPlain(field.as, tensor, cell);
    return absl::OkStatus();
  }
  FW_ASSIGN_OR_RETURN(Picture picture, ToPicture(tensor, PixelChanges(graph_, field.output)));
  FW_ASSIGN_OR_RETURN(const cv::Mat fitted, FitIntoCell(picture.image, side_));
  cell->picture = fitted.clone();
  if (picture.is_stretched) absl::StrAppend(&cell->footnote, " (stretched)");
  const server::Size size = server::ImageSizeOf(tensor.spec);
  for (size_t mask : field.masks)
    overlay_->DrawMask(output(mask), size, &cell->picture, &cell->captions);
  for (size_t i = 0; i < field.boxes.size(); ++i) {
    const std::optional<double> padding = PaddingOf(field.boxes[i]);
    std::optional<Tensor> labels;
    if (field.labels[i] >= 0) labels = output(static_cast<size_t>(field.labels[i]));
    overlay_->DrawBoxes(output(field.boxes[i]), labels ? &*labels : nullptr,
                        padding ? &*padding : nullptr, size, &cell->picture, &cell->captions);
  }
  for (size_t points : field.keypoints) {
    const std::optional<double> padding = PaddingOf(points);
    overlay_->DrawKeypoints(output(points), padding ? &*padding : nullptr, size, &cell->picture,
                            &cell->captions);
  }
  return absl::OkStatus();
}

void CellMaker::ShowPlain(ShownAs as, const Tensor& tensor, SheetCell* cell) const {
  if (tensor.elements() == 0) {
    cell->text = "(empty)";
    return;
  }
  switch (as) {
    case ShownAs::kHeatMap:
    case ShownAs::kWave: {
      SignalPicture picture =
          as == ShownAs::kHeatMap ? HeatMap(tensor, side_) : Waveform(tensor, side_);
      cell->picture = std::move(picture.image);
      cell->captions.push_back(std::move(picture.range));
      break;
    }
    case ShownAs::kMask:
      cell->picture = overlay_->MaskPicture(tensor, side_, &cell->captions);
      break;
    case ShownAs::kText:
    case ShownAs::kNumbers:
      cell->text = TextOf(tensor);
      cell->captions.push_back(
          server::FormatCount(tensor.elements(), as == ShownAs::kText ? "byte" : "number"));
      break;
    case ShownAs::kImage:
    case ShownAs::kNothing:
      break;
  }
}

void CellMaker::ShowAnnotations(const server::Record& record, server::Size size,
                                SheetCell* cell) const {
  const std::vector<server::FieldSpec>& fields = dataset_->fields();
  const absl::Status drawn = server::NoThrow([&] {
    for (size_t i = 0; i < fields.size() && i < record.fields.size(); ++i) {
      const Tensor& field = record.fields[i];
      if (IsMask(field.spec) && field.spec.shape[0] == size.height &&
          field.spec.shape[1] == size.width)
        overlay_->DrawMask(field, size, &cell->picture, &cell->captions);
      if (!IsBoxes(fields[i].spec)) continue;
      const Tensor* labels = nullptr;
      for (size_t j = 0; j < fields.size() && labels == nullptr; ++j) {
        if (MayLabel(fields[i], fields[j]) && fields[j].name.rfind("label", 0) == 0)
          labels = &record.fields[j];
      }
      overlay_->DrawBoxes(field, labels, nullptr, size, &cell->picture, &cell->captions);
    }
    return absl::OkStatus();
  });
  if (!drawn.ok()) cell->captions.push_back(std::string(drawn.message()));
}

void CellMaker::ShowRecord(const server::Record& record, SheetCell* cell) const {
  const std::vector<server::FieldSpec>& fields = dataset_->fields();
  for (size_t i = 0; i < fields.size() && i < record.fields.size(); ++i) {
    const Tensor& field = record.fields[i];
    if (fields[i].spec.layout == server::Layout::kEncoded) {
      cell->text = absl::StrCat(fields[i].name, ": ",
                                server::FormatBytes(static_cast<int64_t>(field.bytes())));
      return;
    }
    // By what it is here: how many rows a field has at most, only an output knows.
    server::FieldSpec now = fields[i];
    now.spec = field.spec;
    const ShownAs as = ShownAsOf(now);
    if (as == ShownAs::kNothing || as == ShownAs::kImage) continue;
    const absl::Status shown = server::NoThrow([&] {
      ShowPlain(as, field, cell);
      return absl::OkStatus();
    });
    if (!shown.ok()) cell->problem = std::string(shown.message());
    return;
  }
}

}  // namespace feedwater::cli
