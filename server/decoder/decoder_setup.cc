#include "server/decoder/decoder_setup.h"

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/graph/digest.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kMaxFields = 4096, kMaxAxes = 16, kMaxFiles = 4096;

class Reader {
 public:
  explicit Reader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    T value{};
    if (bytes_.size() < sizeof(T)) {
      good_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string Text() {
    const auto length = Number<uint32_t>();
    if (!good_ || length > bytes_.size()) {
      good_ = false;
      return "";
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_.remove_prefix(length);
    return text;
  }
  bool good() const { return good_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  absl::Span<const std::byte> bytes_;
  bool good_ = true;
};

template <typename T>
void PutNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutText(const std::string& text, std::string* out) {
  PutNumber(static_cast<uint32_t>(text.size()), out);
  out->append(text);
}

}  // namespace

DecoderSetup SetupOf(const PipelineSpec& spec, const Dataset& dataset, bool fuse) {
  DecoderSetup setup;
  setup.text = spec.text;
  setup.file_name = spec.file_name;
  setup.caps = spec.caps;
  setup.files = spec.files();
  setup.fields = dataset.fields();
  setup.classes = static_cast<int64_t>(dataset.classes().size());
  setup.fuse = fuse;
  return setup;
}

static_assert(sizeof(PipelineCaps) == 6 * sizeof(int64_t),
              "a new cap goes to the decoder too: EncodeSetup and DecodeSetup");

std::string EncodeSetup(const DecoderSetup& setup) {
  std::string out;
  PutText(setup.text, &out);
  PutText(setup.file_name, &out);
  PutNumber(setup.classes, &out);
  PutNumber(static_cast<uint8_t>(setup.fuse), &out);
  for (int64_t cap : {setup.caps.images.max_pixels, int64_t{setup.caps.images.max_scans},
                      setup.caps.images.max_decode_ms, setup.caps.images.max_sample_ms,
                      setup.caps.max_ops, setup.caps.max_outputs}) {
    PutNumber(cap, &out);
  }
  PutNumber(static_cast<uint32_t>(setup.fields.size()), &out);
  for (const FieldSpec& field : setup.fields) {
    PutText(field.name, &out);
    PutNumber(static_cast<uint8_t>(field.spec.dtype), &out);
    PutNumber(static_cast<uint8_t>(field.spec.layout), &out);
    PutNumber(static_cast<uint32_t>(field.spec.shape.size()), &out);
    for (int64_t size : field.spec.shape) PutNumber(size, &out);
  }
  PutNumber(static_cast<uint32_t>(setup.files.size()), &out);
  for (const OpFile& file : setup.files) {
    PutText(file.root, &out);
    PutText(file.path, &out);
    PutText(file.content == nullptr ? "" : file.content->bytes(), &out);
  }
  return out;
}

absl::StatusOr<DecoderSetup> DecodeSetup(absl::Span<const std::byte> bytes) {
  const auto wrong = [] { return absl::DataLossError("what the decoder is to do is damaged"); };
  Reader reader(bytes);
  DecoderSetup setup;
  setup.text = reader.Text();
  setup.file_name = reader.Text();
  setup.classes = reader.Number<int64_t>();
  setup.fuse = reader.Number<uint8_t>() != 0;
  setup.caps.images.max_pixels = reader.Number<int64_t>();
  setup.caps.images.max_scans = static_cast<int>(reader.Number<int64_t>());
  setup.caps.images.max_decode_ms = reader.Number<int64_t>();
  setup.caps.images.max_sample_ms = reader.Number<int64_t>();
  setup.caps.max_ops = reader.Number<int64_t>();
  setup.caps.max_outputs = reader.Number<int64_t>();
  const auto fields = reader.Number<uint32_t>();
  if (!reader.good() || fields > kMaxFields || setup.classes < 0) return wrong();
  for (uint32_t i = 0; i < fields; ++i) {
    FieldSpec field;
    field.name = reader.Text();
    field.spec.dtype = static_cast<DType>(reader.Number<uint8_t>());
    const auto layout = reader.Number<uint8_t>();
    field.spec.layout = static_cast<Layout>(layout);
    const auto axes = reader.Number<uint32_t>();
    if (!reader.good() || DTypeSize(field.spec.dtype) == 0 ||
        layout > static_cast<uint8_t>(Layout::kEncoded) || axes > kMaxAxes) {
      return wrong();
    }
    for (uint32_t axis = 0; axis < axes; ++axis)
      field.spec.shape.push_back(reader.Number<int64_t>());
    if (!reader.good()) return wrong();
    setup.fields.push_back(std::move(field));
  }
  const auto files = reader.Number<uint32_t>();
  if (!reader.good() || files > kMaxFiles) return wrong();
  for (uint32_t i = 0; i < files; ++i) {
    OpFile file;
    file.root = reader.Text();
    file.path = reader.Text();
    file.content =
        std::make_shared<const FileContent>(reader.Text(), /*stamp=*/0, MemoryReservation());
    if (!reader.good()) return wrong();
    setup.files.push_back(std::move(file));
  }
  if (!reader.at_end()) return wrong();
  return setup;
}

absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const DecoderSetup& setup) {
  GivenFiles files(setup.files);
  FW_ASSIGN_OR_RETURN(const PipelineSpec spec,
                      ParsePipeline(setup.text, setup.file_name, setup.caps, &files));
  PlanOptions options;
  options.stream = false;
  options.fuse = setup.fuse;
  return Plan::Create(spec, setup.fields, setup.classes, options);
}

std::string PlanIdentity(const Plan& plan) {
  std::string text = absl::StrCat(plan.prefix().digest, "\n", plan.staging_bytes_per_sample());
  for (const FieldSpec& output : plan.outputs())
    absl::StrAppend(&text, "\n", output.name, " ", output.ShapeText());
  for (const FieldSpec& kept : plan.prefix().fields)
    absl::StrAppend(&text, "\nkept ", kept.name, " ", kept.spec.ToString());
  for (const std::string& step : plan.Describe()) absl::StrAppend(&text, "\n", step);
  return Digest128(text);
}

}  // namespace feedwater::server
