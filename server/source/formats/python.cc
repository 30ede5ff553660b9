// Format `python`: records that the user's own program gives: a Dataset of PyTorch's kind, or
// whatever has a length and gives an item for a number. The program runs in the user's own
// processes (feedwater.Loader.from_dataset, feedwater.serve_source); the daemon asks them for the
// records of a batch in the order that it has settled.
#include <utility>

#include "server/source/format.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

struct PythonParams {
  std::string name;
};

class Python final : public Format {
 public:
  explicit Python(PythonParams params) : params_(std::move(params)) {}
  std::vector<FieldSpec> fields() const override { return {}; }
  bool knows_fields() const override { return false; }
  int64_t sections_version() const override { return 0; }
  absl::Status BuildIndex(const DatasetLocation&, IndexBuilder*) const override {
    return NoFiles();
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts) const override {
    return NoFiles();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> OpenGiven(
      const DatasetOptions& options) const override {
    if (options.offered == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the records of source '", params_.name,
          "' come from your program, which a daemon asks for them: this command has none"));
    }
    FW_ASSIGN_OR_RETURN(OfferedSources::Found found,
                        options.offered->Find(options.user, params_.name));
    return GivenDataset(std::move(found), options.budget.get());
  }

 private:
  static absl::Status NoFiles() { return absl::InternalError("format 'python' has no files"); }

  const PythonParams params_;
};

FormatEntry Declare() {
  FormatEntry entry = DeclareFormat<Python>(
      "Records that your own program gives: any Dataset with `__len__` and `__getitem__`, served "
      "by "
      "your own processes (`feedwater.Loader.from_dataset`, `feedwater.serve_source`).",
      "dataset: {format: python, name: mine}",
      FormatSchema<PythonParams>().Required(
          "name", &PythonParams::name,
          "The name under which your program serves it: feedwater.serve_source(\"mine\", ...)."));
  entry.has_files = false;
  return entry;
}

const Registrar kRegistrar("python", Declare());

}  // namespace
}  // namespace feedwater::server
