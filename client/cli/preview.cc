// feedwater preview: a contact sheet of originals beside what the trainer gets of them, with boxes,
// masks and keypoints drawn over their images. Epochs are real ones: the sheet shows the very
// samples that a daemon would deliver with this seed, except that batch ops see the sheet's own
// rows as their batch.
#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/contact_sheet.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/original_image.h"
#include "client/cli/output_file.h"
#include "client/cli/picture.h"
#include "client/cli/progress.h"
#include "client/cli/sample_batch.h"
#include "client/cli/sample_cell.h"
#include "client/cli/shown_fields.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/advice.h"
#include "server/graph/element.h"
#include "server/pipeline/dataset_order.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::Tensor;
using server::TensorSpec;

struct Arguments {
  std::string pipeline, output, config, address;
  int64_t samples = 8;
  std::optional<int64_t> draws;
  uint64_t epoch = 0;
  std::optional<uint64_t> seed;
  std::vector<std::string> fields;
  int cell = 192;
};

// One record's row.
struct Row {
  int64_t record = 0, position = 0;
  std::string class_name;  // "cat (0)", or "" without a label
  SheetCell original;
  std::vector<SheetCell> draws;  // views of the first epoch, then those of the next
};

// Epochs of each record where the user does not say: fewer where a sample has many views.
constexpr int64_t kDraws = 4, kMostColumns = 16;
constexpr size_t kMostSteps = 12;  // of the plan, above the pictures

bool IsScalar(const TensorSpec& spec) {
  return spec.layout == server::Layout::kPlain && spec.shape.empty();
}

class Preview {
 public:
  explicit Preview(const Arguments& arguments) : arguments_(arguments) {}

  absl::Status Make() {
    FW_RETURN_IF_ERROR(CheckPictureName(arguments_.output));
    FW_RETURN_IF_ERROR(CheckWritable(arguments_.output));
    FW_RETURN_IF_ERROR(Open());
    FW_RETURN_IF_ERROR(ChooseFields());
    FW_RETURN_IF_ERROR(ChooseRecords());
    FW_RETURN_IF_ERROR(ShowOriginals());
    for (int64_t draw = 0; draw < draws_; ++draw) {
      FW_RETURN_IF_ERROR(ShowEpoch(arguments_.epoch + static_cast<uint64_t>(draw)));
    }
    FW_ASSIGN_OR_RETURN(const cv::Mat sheet, Draw(Sheet()));
    width_ = sheet.cols;
    height_ = sheet.rows;
    FW_ASSIGN_OR_RETURN(const std::string file, EncodePicture(sheet, arguments_.output));
    return WriteFile(arguments_.output, file);
  }

  json ToJson() const {
    json rows = json::array();
    for (const Row& row : rows_) {
      json problems = json::array(), notes = json::array();
      if (!row.original.problem.empty()) problems.push_back(row.original.problem);
      for (const SheetCell& cell : row.draws) {
        if (!cell.problem.empty()) problems.push_back(cell.problem);
        notes.push_back(cell.captions);
      }
      rows.push_back({{"record", row.record},
                      {"position", row.position},
                      {"path", PlaceOf(local_.dataset(), row.record).path},
                      {"class", row.class_name},
                      {"original", row.original.captions},
                      {"captions", notes},
                      {"problems", problems}});
    }
    return {{"file", arguments_.output},
            {"width", width_},
            {"height", height_},
            {"pipeline", local_.loaded->spec.name},
            {"seed", seed_},
            {"first_epoch", arguments_.epoch},
            {"draws", draws_},
            {"fields", FieldNames()},
            {"advice", advice_},
            {"samples", rows}};
  }

  void PrintText() const {
    int64_t bad = 0;
    std::string first;  // of those that are bad
    for (const Row& row : rows_) {
      const std::string& problem = ProblemOf(row);
      if (problem.empty()) continue;
      if (++bad > 1) continue;
      const std::string& path = row.original.path;
      first = absl::StrCat("record ", row.record, path.empty() ? "" : absl::StrCat(" (", path, ")"),
                           ": ", problem);
    }
    std::cout << arguments_.output << ": "
              << server::FormatCount(static_cast<int64_t>(rows_.size()), "record") << ", each with "
              << server::FormatCount(draws_, "draw") << " of "
              << absl::StrJoin(FieldNames(), " and ") << ", " << width_ << "x" << height_
              << " pixels";
    if (bad > 0) std::cout << "; " << bad << " bad, shown in red";
    std::cout << "\n";
    if (bad > 0) {
      std::cout << Wrapped(server::Escaped(absl::StrCat(bad > 1 ? "the first: " : "", first)), 2);
    }
  }

 private:
  absl::Status Open() {
    Progress progress("index", "records");
    LocalOptions options;
    options.config = {arguments_.config, arguments_.address};
    options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
    FW_ASSIGN_OR_RETURN(local_, OpenLocalPipeline(arguments_.pipeline, options));
    seed_ = arguments_.seed.value_or(local_.loaded->spec.sampler.seed);
    graph_ = local_.plan().Graph();
    advice_ = server::AdviceOnMoves(local_.loaded->spec, local_.dataset().fields());
    return absl::OkStatus();
  }

  // What is wrong with a row, first of all with its record; "" where it is good.
  static const std::string& ProblemOf(const Row& row) {
    for (const SheetCell& cell : row.draws) {
      if (row.original.problem.empty() && !cell.problem.empty()) return cell.problem;
    }
    return row.original.problem;
  }

  // Which outputs to show, which field of a record has the original, and where the labels are.
  absl::Status ChooseFields() {
    FW_ASSIGN_OR_RETURN(views_, ChooseShown(local_.plan(), graph_, arguments_.fields));
    if (views_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          local_.file, ": none of its outputs is an image, a mask, a sound or text to show"));
    }
    draws_ = arguments_.draws.value_or(
        std::clamp(kMostColumns / static_cast<int64_t>(views_.size()), int64_t{1}, kDraws));
    const std::vector<server::FieldSpec>& outputs = local_.plan().outputs();
    const auto classes = static_cast<int64_t>(local_.dataset().classes().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorSpec& spec = outputs[i].spec;
      if (outputs[i].name == "label" && spec.shape.size() == 1 && classes > 0 &&
          spec.shape[0] == classes)
        soft_label_ = static_cast<int>(i);
    }
    const std::vector<server::FieldSpec>& fields = local_.dataset().fields();
    for (size_t i = 0; i < fields.size(); ++i) {
      if (original_ < 0 && (IsPicture(fields[i].spec) || IsDecoded(i)))
        original_ = static_cast<int>(i);
      if (fields[i].name == "label" && IsScalar(fields[i].spec)) label_ = static_cast<int>(i);
    }
    FW_ASSIGN_OR_RETURN(CellMaker cells, CellMaker::Create(local_.plan(), local_.loaded->spec,
                                                           local_.dataset(), arguments_.cell));
    cells_ = std::make_unique<CellMaker>(std::move(cells));
    return absl::OkStatus();
  }

  // Whether the field is the file of an image: one that the graph decodes or, where it decodes none
  // itself, any.
  bool IsDecoded(size_t field) const {
    const server::FieldSpec& spec = local_.dataset().fields()[field];
    if (spec.spec.layout != server::Layout::kEncoded) return false;
    if (!local_.plan().decodes()) return true;
    for (const server::PlanGraph::Edge& edge : graph_.edges) {
      const auto& from = graph_.nodes[edge.from];
      const auto* entry = server::Registry<server::OpEntry>::Get().Find(graph_.nodes[edge.to].name);
      if (from.kind == server::PlanGraph::Kind::kField && from.name == spec.name &&
          entry != nullptr && entry->fusion == server::Fusion::kDecode)
        return true;
    }
    return false;
  }

  // Evenly spread over the order of the first epoch: at random where the pipeline shuffles, over
  // the classes where it does not.
  absl::Status ChooseRecords() {
    server::SamplerSpec sampler = local_.loaded->spec.sampler;
    sampler.seed = seed_;
    FW_ASSIGN_OR_RETURN(server::OrderConfig config,
                        server::MakeOrderConfig(sampler, local_.dataset(), /*batch_size=*/1,
                                                /*world_size=*/1));
    config.seed = seed_;
    order_ = std::make_shared<const server::OrderConfig>(std::move(config));
    const server::EpochOrder order(order_, arguments_.epoch, /*start=*/0);
    const int64_t positions = order_->positions();
    const int64_t count = std::min(arguments_.samples, positions);
    for (int64_t i = 0; i < count; ++i) {
      Row row;
      row.position = static_cast<int64_t>(static_cast<__int128>(i) * positions / count);
      row.record = order.RecordAt(row.position);
      rows_.push_back(std::move(row));
    }
    FW_ASSIGN_OR_RETURN(RecordLoader loader, RecordLoader::Create(local_));
    loader_ = std::make_unique<RecordLoader>(std::move(loader));
    FW_ASSIGN_OR_RETURN(
        SampleBatch batch,
        SampleBatch::Create(
            local_.plan(), count,
            local_.NewMaker(local_.loaded->plan, SetupOf(local_.loaded->spec, local_.dataset()))));
    batch_ = std::make_unique<SampleBatch>(std::move(batch));
    return absl::OkStatus();
  }

  std::string ClassName(int64_t label) const {
    const std::vector<std::string>& classes = local_.dataset().classes();
    if (label < 0 || label >= static_cast<int64_t>(classes.size())) return absl::StrCat(label);
    const std::string& name = classes[static_cast<size_t>(label)];
    return name == absl::StrCat(label) ? name : absl::StrCat(name, " (", label, ")");
  }

  absl::Status ShowOriginals() {
    for (Row& row : rows_) {
      row.original.footnote = absl::StrCat("record ", row.record);
      row.original.path = PlaceOf(local_.dataset(), row.record).path;
      const absl::StatusOr<const server::Record*> record = loader_->Load(row.record);
      if (!record.ok()) {
        row.original.problem = std::string(record.status().message());
        continue;
      }
      if (label_ >= 0) {
        const Tensor& label = (*record)->fields[static_cast<size_t>(label_)];
        row.class_name =
            ClassName(static_cast<int64_t>(server::LoadDouble(label.spec.dtype, label.data)));
        row.original.captions = {row.class_name};
      }
      if (original_ < 0) {
        cells_->ShowRecord(**record, &row.original);
        continue;
      }
      const Tensor& field = (*record)->fields[static_cast<size_t>(original_)];
      const absl::StatusOr<OriginalImage> image =
          OriginalImage::Of(local_, static_cast<size_t>(original_), field, arguments_.cell);
      if (!image.ok()) {
        if (local_.plan().decodes()) {
          row.original.problem = std::string(image.status().message());
        } else {  // it need not be an image
          cells_->ShowRecord(**record, &row.original);
        }
        continue;
      }
      const server::Size size = image->size;
      absl::StrAppend(&row.original.footnote, ", ", size.width, "x", size.height);
      if (image->is_turned) absl::StrAppend(&row.original.footnote, ", turned");
      some_are_turned_ |= image->is_turned;
      FW_ASSIGN_OR_RETURN(const cv::Mat fitted, FitIntoCell(image->pixels, arguments_.cell));
      row.original.picture = fitted.clone();
      // Where they lie in an image that is turned, nobody has said.
      if (!image->is_turned) cells_->ShowAnnotations(**record, size, &row.original);
    }
    return absl::OkStatus();
  }

  // Of the record's draws. In a mix it may have no place in this epoch, and shows others then.
  server::PhiloxKey KeyOf(const server::EpochOrder& order, const Row& row) const {
    if (order.epoch() == arguments_.epoch) return order.PickAt(row.position).key;
    const int64_t position = order.PositionOf(row.record);
    return position < 0 ? order.key() : order.PickAt(position).key;
  }

  // Runs all rows as one batch of this epoch; those that fail are left out of it.
  absl::Status ShowEpoch(uint64_t epoch) {
    const server::PhiloxKey key = server::EpochKey(seed_, epoch);
    const server::EpochOrder order(order_, epoch, /*start=*/0);
    std::vector<absl::Status> results;
    int64_t good = 0;
    for (const Row& row : rows_) {
      const absl::StatusOr<const server::Record*> record = loader_->Load(row.record);
      if (!record.ok()) {
        results.push_back(record.status());
        continue;
      }
      server::SampleInput input;
      input.record = *record;
      input.sample_id = row.record;
      input.position = row.position;
      input.key = KeyOf(order, row);
      results.push_back(batch_->Run(input, good));
      good += results.back().ok();
    }
    if (good > 0 && local_.plan().finishes_batches()) {
      FW_RETURN_IF_ERROR(batch_->Finish(good, /*global_batch=*/0, key));
    }
    int64_t k = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t place = results[i].ok() ? k++ : -1;
      for (const ShownField& view : views_) {
        rows_[i].draws.push_back(CellOf(rows_[i], view, epoch, place, results[i]));
      }
    }
    return absl::OkStatus();
  }

  SheetCell CellOf(const Row& row, const ShownField& view, uint64_t epoch, int64_t place,
                   const absl::Status& result) const {
    SheetCell cell;
    if (!row.class_name.empty()) cell.captions = {row.class_name};
    cell.footnote = absl::StrCat("record ", row.record, ", epoch ", epoch);
    if (!result.ok()) {
      cell.problem = std::string(result.message());
      return cell;
    }
    if (soft_label_ >= 0) {
      cell.captions = SoftLabel(batch_->Output(static_cast<size_t>(soft_label_), place));
    }
    cells_->Show(
        view, [&](size_t output) { return batch_->Output(output, place); }, &cell);
    return cell;
  }

  // "cat 0.71", "dog 0.29": the two heaviest classes.
  std::vector<std::string> SoftLabel(const Tensor& label) const {
    std::vector<std::pair<double, int64_t>> weights;
    for (int64_t i = 0; i < label.elements(); ++i) {
      const size_t step = server::DTypeSize(label.spec.dtype);
      const double weight =
          server::LoadDouble(label.spec.dtype, label.data + static_cast<size_t>(i) * step);
      if (weight > 0) weights.emplace_back(weight, i);
    }
    std::sort(weights.rbegin(), weights.rend());
    if (weights.size() == 1) return {ClassName(weights[0].second)};
    std::vector<std::string> lines;
    for (size_t i = 0; i < weights.size() && i < 2; ++i) {
      lines.push_back(absl::StrFormat("%s %.2f", ClassName(weights[i].second), weights[i].first));
    }
    return lines;
  }

  std::vector<std::string> FieldNames() const {
    std::vector<std::string> names;
    for (const ShownField& view : views_) {
      const std::string& name = local_.plan().outputs()[view.output].name;
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
  }

  ContactSheet Sheet() const {
    ContactSheet sheet;
    sheet.cell_side = arguments_.cell;
    const server::Dataset& dataset = local_.dataset();
    sheet.title = local_.loaded->spec.name;
    sheet.subtitles.push_back(absl::StrCat(
        server::FormatCount(dataset.size(), "record"),
        dataset.classes().empty()
            ? ""
            : ", " + server::FormatCount(static_cast<int64_t>(dataset.classes().size()), "class"),
        ", seed ", seed_));
    size_t told = 0, untold = 0;
    for (const std::string& step : local_.plan().Describe()) {
      if (step.rfind("copy ", 0) == 0) continue;
      ++(told < kMostSteps ? told : untold);
      if (untold == 0) sheet.subtitles.push_back(step);
    }
    if (untold > 0) sheet.subtitles.push_back(absl::StrCat("... and ", untold, " passes more"));
    if (local_.plan().has_batch_ops()) {
      sheet.subtitles.push_back("Batch ops mix the rows of this sheet, as they would a batch.");
    }
    if (some_are_turned_) {
      sheet.subtitles.push_back(
          "Originals are turned as their EXIF data says; decode turns them only with 'orientation: "
          "exif'.");
    }
    for (const std::string& advice : advice_) sheet.subtitles.push_back(advice);
    sheet.columns.push_back("original");
    for (int64_t draw = 0; draw < draws_; ++draw) {
      for (const ShownField& view : views_) {
        sheet.columns.push_back(
            absl::StrCat(view.title, ", epoch ", arguments_.epoch + static_cast<uint64_t>(draw)));
      }
    }
    for (const Row& row : rows_) {
      sheet.rows.push_back({row.original});
      sheet.rows.back().insert(sheet.rows.back().end(), row.draws.begin(), row.draws.end());
    }
    return sheet;
  }

  const Arguments& arguments_;
  LocalPipeline local_;
  std::shared_ptr<const server::OrderConfig> order_;
  server::PlanGraph graph_;
  uint64_t seed_ = 0;
  std::vector<ShownField> views_;
  std::vector<std::string> advice_;
  int64_t draws_ = kDraws;
  int original_ = -1;    // field of a record that is an image
  int label_ = -1;       // field of a record that is its class
  int soft_label_ = -1;  // output that has a weight for each class
  std::unique_ptr<RecordLoader> loader_;
  std::unique_ptr<SampleBatch> batch_;
  std::unique_ptr<CellMaker> cells_;
  std::vector<Row> rows_;
  bool some_are_turned_ = false;  // by their EXIF data
  int width_ = 0, height_ = 0;
};

void AddPreview(CLI::App& app, Context& context) {
  static Arguments arguments;
  CLI::App* command = AddCommand(
      app, context, "preview",
      "draw a contact sheet: originals beside what the pipeline makes of them, with boxes, masks "
      "and keypoints over their images; needs no daemon",
      "  feedwater preview imagenet-train -o sheet.png\n"
      "  feedwater preview ./my-pipeline.yaml --config feedwater.yaml -o sheet.png\n"
      "  feedwater preview simclr -o views.jpg --samples 4 --draws 2 --field view_a view_b",
      [&context]() -> absl::Status {
        arguments.address = context.address;
        Preview preview(arguments);
        FW_RETURN_IF_ERROR(preview.Make());
        if (context.json) {
          PrintJson(preview.ToJson());
        } else {
          preview.PrintText();
        }
        return absl::OkStatus();
      });
  command
      ->add_option("pipeline", arguments.pipeline, "a .yaml file, or a name of the configuration")
      ->required()
      ->type_name("PIPELINE");
  command->add_option("-o,--output", arguments.output, "the sheet: .png, .jpg, .webp or .bmp")
      ->required()
      ->type_name("FILE");
  command->add_option("--config", arguments.config, kConfigHelp)->type_name("FILE");
  command->add_option("--samples", arguments.samples, "records, one a row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--draws", arguments.draws,
                   "epochs to show of each record; default 4, fewer where a sample has many views")
      ->check(CLI::Range(1, 50));
  command->add_option("--epoch", arguments.epoch, "the first of them")->capture_default_str();
  command->add_option("--seed", arguments.seed, "in place of the pipeline's own");
  command
      ->add_option("--field", arguments.fields,
                   "outputs to show; default: all images, spectrograms, waveforms and texts")
      ->type_name("OUTPUT");
  command->add_option("--cell", arguments.cell, "side of a picture on the sheet, in pixels")
      ->check(CLI::Range(48, 1024))
      ->capture_default_str();
}

const server::Registrar<CommandEntry> kRegistrar("preview", {CommandEntry::kPipelines, AddPreview});

}  // namespace

}  // namespace feedwater::cli
