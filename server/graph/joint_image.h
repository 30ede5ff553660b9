// The port of ops that move an image, and with it masks, boxes and keypoints.
#pragma once

#include <utility>

#include "server/graph/op_schema.h"

namespace feedwater::server {

template <typename P>
OpSchema<P>&& JointImageSchema(OpSchema<P>&& schema) {
  return std::move(schema)
      .Input({.field = "image",
              .layouts = {Layout::kHWC},
              .dtypes = {DType::kUInt8},
              .doc = "The image, and what moves with it."})
      .OutputLikeInput()
      .Joint();
}

}  // namespace feedwater::server
