// Datasets whose records are image files, one each: what `image_folder` and `images` share.
//
// The index keeps 8 bytes and the file name for each record. It depends on every folder, not on
// every file: a file that is added, removed or renamed changes its folder; one that is rewritten in
// place is found only by its reader.
#pragma once

#include <memory>
#include <vector>

#include "server/source/class_scan.h"
#include "server/source/digest.h"
#include "server/source/format.h"

namespace feedwater::server {

// The field `data` of both.
FieldSpec ImageFileField();

// Puts what was scanned into the index: stamps, records, notes, classes and sections. `digest`
// holds the format's name, and gets all names and sizes. `class_starts` receives the first record
// of each class, and the end; it must be added (AddClassStarts) when it was checked.
absl::Status IndexImageFiles(const DatasetLocation& location, ScannedClasses scan, Digest digest,
                             IndexBuilder* builder, std::vector<uint64_t>* class_starts);
void AddClassStarts(const std::vector<uint64_t>& class_starts, IndexBuilder* builder);

// With class starts the field `label` stands behind `data`.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFiles(IndexedParts parts, bool has_labels);

}  // namespace feedwater::server
