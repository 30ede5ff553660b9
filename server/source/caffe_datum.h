// A Datum of Caffe (caffe.proto), as its LMDB files hold them: an image of channels x height x
// width bytes or floats, or the bytes of an encoded image, with a label.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/base/tensor.h"

namespace feedwater::server {

struct CaffeDatum {
  // Views into `message`. DataLoss when it is no Datum.
  static absl::StatusOr<CaffeDatum> Read(absl::string_view message);

  int64_t channels = 0, height = 0, width = 0, label = 0;
  bool is_encoded = false;
  bool has_floats = false;  // instead of bytes
  absl::string_view data;
  std::vector<float> floats;

  Shape shape() const { return {channels, height, width}; }
};

}  // namespace feedwater::server
