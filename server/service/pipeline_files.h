// The pipeline files of the configured folders: NAME.yaml is the pipeline NAME, and where two
// folders have one, it is the first folder's. The daemon's configuration, which may lie among them,
// is none.
//
// A file is looked at each time its pipeline is asked for: what a loader gets is what stands in the
// file. While an edit has broken it, the version before is used, with the mistake beside it; a file
// that was never good is its error, with file:line:column.
//
// Files below roots are not looked at, neither datasets nor those of ops: that may wait for ever,
// and is done when the pipeline is opened (catalogue.h).
//
// Thread-safe. Look and LookAtAll read files, which may take as long as storage does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/graph/pipeline_spec.h"
#include "server/storage/roots.h"

namespace feedwater::server {

// Where pipelines are looked for, and the configuration's file ("": there is none), which is told
// by its device and inode: a pipeline may have its name.
struct PipelineFolders {
  std::vector<std::string> folders;
  std::string config_file;
};

// The files by pipeline name. What is hidden or cannot be listed is a line in the log, if `tell`.
std::map<std::string, std::string> FindPipelineFiles(const PipelineFolders& where,
                                                     bool tell = true);

// InvalidArgument, with the place, when the dataset's root is none of these.
absl::Status CheckRoot(const PipelineSpec& spec, const Roots& roots);
// Reads a pipeline and checks all that can be checked without opening its dataset or a file of its
// ops, the roots' names and the plan included.
absl::StatusOr<PipelineSpec> CheckPipelineFile(const std::string& path, const Roots& roots,
                                               const PipelineCaps& caps);

// A file as it was when it was read; another object once something else stands in it.
struct PipelineFile {
  std::string path;
  absl::StatusOr<PipelineSpec> spec;  // whose ops' files were not read
  absl::Status mistake;  // of what stands in the file, where `spec` is the version before
  // It was checked against these, and is to be opened below them: the reload that brought them.
  std::shared_ptr<const Roots> roots;
  uint64_t reload = 0;
};

class PipelineFiles {
 public:
  explicit PipelineFiles(const PipelineCaps& caps) : caps_(caps) {}

  // Other folders, or other roots to check against; reads all.
  void Reload(const PipelineFolders& where, std::shared_ptr<const Roots> roots)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What the last one that is over brought.
  struct Reloaded {
    std::shared_ptr<const Roots> roots;
    uint64_t number = 0;  // counts them
  };
  Reloaded reloaded() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return {setting_.roots, setting_.reload};
  }
  // The pipeline's file as it is now. NotFound: there is none. Other errors: it cannot be told.
  absl::StatusOr<std::shared_ptr<const PipelineFile>> Look(const std::string& name)
      ABSL_LOCKS_EXCLUDED(mu_);
  void LookAtAll() ABSL_LOCKS_EXCLUDED(mu_);

  // Of the last look.
  std::vector<std::string> Names() const ABSL_LOCKS_EXCLUDED(mu_);
  // For the log: the names that can be used, and those whose files have a mistake.
  std::string Describe() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Known {
    uint64_t stamp = 0;                             // FileStamp; 0: it is to be read again
    std::shared_ptr<const PipelineFile> file;       // null: there was none at the last look
    std::shared_ptr<const PipelineFile> last_good;  // may be null
  };
  using Files = std::map<std::string, Known>;
  struct Setting {
    PipelineFolders where;
    std::shared_ptr<const Roots> roots;
    uint64_t reload = 0;  // counts them
  };
  Known Read(const std::string& name, const std::string& path, const Known& before,
             const Setting& setting) const;
  absl::Status Unknown(const std::string& name, const PipelineFolders& where) const;

  const PipelineCaps caps_;
  mutable Mutex mu_;
  Setting setting_ ABSL_GUARDED_BY(mu_);
  Files files_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
