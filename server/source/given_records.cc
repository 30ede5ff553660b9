#include "server/source/given_records.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/base/payload.h"
#include "server/source/digest.h"

namespace feedwater::server {
namespace {

constexpr const char* kNotServedUrl = "feedwater/not-served";

std::string ContentsOf(const OfferedSource& source) {
  Digest digest;
  digest.Add(source.Digest());
  digest.Add(uint64_t{source.user});
  digest.Add(source.contents);
  return digest.Hex();
}

class GivenRecords final : public Dataset {
 public:
  GivenRecords(OfferedSources::Found found, MemoryReservation memory)
      : source_(std::move(found.source)),
        giver_(std::move(found.giver)),
        memory_(std::move(memory)),
        digest_(source_.Digest()),
        contents_(ContentsOf(source_)),
        notes_(absl::StrCat("given by the program that serves '", source_.name, "'")) {
    for (const FieldSpec& field : source_.fields) specs_.push_back(field.spec);
  }

  int64_t size() const override { return source_.records; }
  const std::vector<FieldSpec>& fields() const override { return source_.fields; }
  const std::vector<std::string>& classes() const override { return source_.classes; }
  const std::string& digest() const override { return digest_; }
  const std::string& contents() const override { return contents_; }
  void Extents(int64_t, std::vector<Extent>*) const override {}
  int64_t objects() const override { return 0; }
  int64_t ObjectBytes(uint32_t) const override { return 0; }
  std::string ObjectPath(uint32_t) const override { return source_.name; }
  const Root& root() const override {
    static const auto& none = *new std::shared_ptr<const Root>(new Root("", "", Fd()));
    return *none;
  }
  std::vector<const Root*> roots() const override { return {}; }
  const std::vector<int64_t>& shard_starts() const override {
    static const auto& none = *new std::vector<int64_t>;
    return none;
  }
  int64_t memory_bytes() const override { return memory_.bytes(); }
  const std::string& notes() const override { return notes_; }
  absl::Status LookAgain(Reach, Look) const override { return giver_->LookAgain(); }
  RecordGiver* giver() const override { return giver_.get(); }

  absl::Status Parse(int64_t, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    if (bytes.size() != 1) return absl::InvalidArgumentError("was not given");
    return ReadPayload(
        bytes[0], specs_,
        [this](size_t i) { return absl::StrCat("field '", source_.fields[i].name, "'"); },
        &out->fields);
  }

 private:
  const OfferedSource source_;
  const std::shared_ptr<RecordGiver> giver_;
  const MemoryReservation memory_;
  const std::string digest_, contents_, notes_;
  std::vector<TensorSpec> specs_;
};

}  // namespace

absl::Status NotServedError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kNotServedUrl, absl::Cord("1"));
  return status;
}

bool IsNotServed(const absl::Status& status) {
  return status.GetPayload(kNotServedUrl).has_value();
}

std::string OfferedSource::Digest() const {
  server::Digest digest;
  digest.Add("given records 2");
  digest.Add(absl::StrCat(records));
  digest.Add(version);
  for (const FieldSpec& field : fields) {
    digest.Add(field.name);
    digest.Add(field.spec.ToString());
    digest.Add(LayoutName(field.spec.layout));
  }
  if (workers != 0) digest.Add(absl::StrCat("workers ", workers));
  digest.Add("classes");
  for (const std::string& name : classes) digest.Add(name);
  return digest.Hex();
}

std::string OfferedSource::Identity() const {
  if (!version.empty()) return absl::StrCat("version ", version);
  return contents.empty() ? "of no version" : absl::StrCat("pickle ", contents);
}

std::string ContentsIn(const Dataset& dataset, uint64_t epoch) {
  if (WorkersOf(dataset) == 0) return dataset.contents();
  constexpr uint64_t kMostEpochs = uint64_t{1} << (4 * (kContentsDigits - kOfAnyEpoch));
  return absl::StrFormat("%s%0*x", OfAnyEpoch(dataset.contents()), kContentsDigits - kOfAnyEpoch,
                         epoch % kMostEpochs);
}

std::string NamesCure(const Dataset& dataset) {
  if (dataset.giver() == nullptr) return "";
  std::vector<std::string> names;
  bool has_data = false, has_label = false, has_unnamed = false;
  for (const FieldSpec& field : dataset.fields()) {
    // As the client calls values by their places.
    const bool is_unnamed = absl::StartsWith(field.name, "field") && field.name.size() > 5 &&
                            absl::ascii_isdigit(static_cast<unsigned char>(field.name[5]));
    const bool is_data = !has_data && field.spec.layout == Layout::kEncoded;
    const bool is_label =
        !has_label && field.spec.dtype == DType::kInt64 && field.spec.shape.empty();
    has_data |= is_data;
    has_label |= is_label;
    has_unnamed |= is_unnamed;
    names.push_back(absl::StrCat("\"",
                                 is_unnamed && is_data    ? "data"
                                 : is_unnamed && is_label ? "label"
                                                          : field.name,
                                 "\""));
  }
  if (!has_unnamed) return "";
  return absl::StrCat("; fields=[", absl::StrJoin(names, ", "),
                      "] where the dataset is served gives its values names");
}

absl::StatusOr<std::shared_ptr<const Dataset>> GivenDataset(OfferedSources::Found found,
                                                            MemoryBudget* budget) {
  MemoryReservation memory;
  if (budget != nullptr) {
    int64_t bytes = 0;
    for (const std::string& name : found.source.classes)
      bytes += static_cast<int64_t>(sizeof(std::string) + name.size() + 1);
    FW_ASSIGN_OR_RETURN(memory, budget->Reserve("indexes", bytes));
  }
  return std::make_shared<const GivenRecords>(std::move(found), std::move(memory));
}

}  // namespace feedwater::server
