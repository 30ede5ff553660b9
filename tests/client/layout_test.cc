// What a client makes of a daemon's description of a stream.
#include "client/cpp/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace feedwater {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::OpenStreamResponse Described(int dtype) {
  v1::OpenStreamResponse opened;
  opened.set_batch_size(4);
  opened.set_world_size(1);
  opened.set_slot_bytes(4096);
  v1::Field* field = opened.add_fields();
  field->set_name("image");
  field->set_dtype(static_cast<v1::DType>(dtype));
  field->add_shape(3);
  return opened;
}

TEST(Layout, OutputsOfEveryKnownTypeAreDescribed) {
  for (int dtype = v1::DTYPE_UINT8; dtype <= v1::DTYPE_FLOAT64; ++dtype) {
    const auto fields = FieldsOf(Described(dtype));
    ASSERT_TRUE(fields.ok()) << fields.status();
    EXPECT_EQ(static_cast<int>(fields->front().dtype), dtype);
  }
}

// A daemon of a later version may have more of them. 257 is 1 in one byte.
TEST(Layout, AnOutputOfAnUnknownTypeIsRefusedByNameAndNumber) {
  for (const int dtype : {0, 12, 99, 257, -1}) {
    const auto fields = FieldsOf(Described(dtype));
    ASSERT_FALSE(fields.ok()) << dtype;
    EXPECT_TRUE(absl::IsUnimplemented(fields.status()));
    EXPECT_THAT(std::string(fields.status().message()),
                AllOf(HasSubstr("'image'"), HasSubstr("type " + std::to_string(dtype))));
  }
}

}  // namespace
}  // namespace feedwater
