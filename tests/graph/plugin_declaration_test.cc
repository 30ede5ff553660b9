// What a plug-in may declare, and that everything else is refused with the op's name and the
// reason.
#include "server/graph/plugin_declaration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/graph/plugin_testing.h"

namespace feedwater::server {
namespace {

using namespace plugin_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(PluginDeclaration, WhatMakesNoSenseIsRefusedWithTheOpsName) {
  static const std::string kLong(5000, 'x');
  static const char* const kNoWord[] = {nullptr};
  feedwater_param param = {"by", "By what.", FEEDWATER_NUMBER, 0, nullptr, "1", 0, 10};
  feedwater_port port = kImagePort;
  struct Mistake {
    std::function<void(feedwater_op*)> change;
    std::string message;
  };
  const auto with_param = [&](std::function<void(feedwater_param*)> change) {
    return [&param, change](feedwater_op* op) {
      change(&param);
      op->params = &param;
      op->param_count = 1;
    };
  };
  const auto with_input = [&](std::function<void(feedwater_port*)> change) {
    return [&port, change](feedwater_op* op) {
      change(&port);
      op->inputs = &port;
    };
  };
  const Mistake mistakes[] = {
      {[](auto* op) { op->name = nullptr; }, "the name of op 1 is missing"},
      {[](auto* op) { op->name = ""; }, "the name of op 1 is missing"},
      {[](auto* op) { op->name = "Invert"; }, "the name of op 1 'Invert' is no name"},
      {[](auto* op) { op->name = "a b"; }, "is no name"},
      {[](auto* op) { op->name = kLong.c_str(); }, "more than 4096 bytes"},
      {[](auto* op) { op->version = nullptr; }, "op 'good': `version` is missing"},
      {[](auto* op) { op->summary = nullptr; }, "op 'good': `summary` is missing"},
      {[](auto* op) { op->summary = "\xff\xfe"; }, "op 'good': `summary` is no UTF-8"},
      {[](auto* op) { op->run = nullptr; }, "op 'good': `run` is a null pointer"},
      {[](auto* op) { op->flags = 8; }, "op 'good': there are no flags 8"},
      {[](auto* op) { op->input_count = 0; }, "op 'good': has 0 inputs; there can be 1 to 16"},
      {[](auto* op) { op->output_count = 17; }, "op 'good': has 17 outputs"},
      {[](auto* op) { op->inputs = nullptr; }, "op 'good': its inputs are a null pointer"},
      {[](auto* op) { op->param_count = 65; }, "op 'good': has 65 parameters"},
      {[](auto* op) { op->param_count = 1; }, "op 'good': its parameters are a null pointer"},
      {with_input([](auto* p) { p->field = nullptr; }),
       "op 'good': item 1 of its inputs: `field` is missing"},
      {with_input([](auto* p) { p->field = "no field"; }), "'no field' is no name for a field"},
      {with_input([](auto* p) { p->field = "is_real"; }), "'is_real' is no name for a field"},
      {with_input([](auto* p) { p->doc = nullptr; }), "`doc` is missing"},
      {with_input([](auto* p) { p->dtypes = 1u << 12; }), "the sets dtypes = 4096"},
      {with_input([](auto* p) { p->layouts = 1u << 4; }), "layouts = 16 name what there is not"},
      {with_param([](auto* p) { p->name = nullptr; }), "a parameter's name is missing"},
      {with_param([](auto* p) { p->name = "in"; }), "'in': every op has that already"},
      {with_param([](auto* p) { p->name = "draws_as"; }), "every op has that already"},
      {with_param([](auto* p) { p->doc = nullptr; }), "parameter 'by': `doc` is missing"},
      {with_param([](auto* p) { p->kind = 0; }), "parameter 'by': there is no kind 0"},
      {with_param([](auto* p) { p->default_text = "eleven"; }), "'by' must be a finite number"},
      {with_param([](auto* p) { p->default_text = "11"; }), "'by' must be between 0 and 10"},
      {with_param([](auto* p) { p->default_text = "[1"; }), "parameter 'by': its default"},
      {with_param([](auto* p) { p->default_text = kLong.c_str(); }), "its default is too long"},
      {with_param([](auto* p) { p->low = 11; }), "leave nothing"},
      {with_param([](auto* p) { p->low = std::nan(""); }), "leave nothing"},
      {with_param([](auto* p) { p->choice_count = 1; }), "choices are for texts"},
      {with_param([](auto* p) {
         p->kind = FEEDWATER_TEXT;
         p->low = p->high = 0;
         p->choices = kNoWord;
         p->choice_count = 1;
       }),
       "a choice is missing"},
      {with_param([](auto* p) { p->kind = FEEDWATER_TRUTH; }), "bounds are for numbers"},
  };
  for (const Mistake& mistake : mistakes) {
    param = {"by", "By what.", FEEDWATER_NUMBER, 0, nullptr, "1", 0, 10};
    port = kImagePort;
    feedwater_op op = OpOf("good", Copy);
    mistake.change(&op);
    const absl::Status status = Read(InfoOf(&op, 1)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << mistake.message << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  }
  const feedwater_op good[] = {OpOf("good", Copy), OpOf("good", Copy)};
  EXPECT_TRUE(Read(InfoOf(good, 1)).ok());
  EXPECT_THAT(std::string(Read(InfoOf(good, 2)).status().message()), HasSubstr("'good' twice"));
  EXPECT_THAT(std::string(Read(InfoOf(good, 0)).status().message()), HasSubstr("has 0 ops"));
  EXPECT_THAT(std::string(Read(InfoOf(nullptr, 1)).status().message()), HasSubstr("null pointer"));
  const feedwater_port ports[] = {kImagePort, kAnyPort};
  feedwater_op more = OpOf("good", Copy);
  more.outputs = ports;
  more.output_count = 2;
  EXPECT_THAT(std::string(Read(InfoOf(&more, 1)).status().message()),
              HasSubstr("output 2 needs a `field`"));
  more.flags = FEEDWATER_REPEATED;
  EXPECT_THAT(std::string(Read(InfoOf(&more, 1)).status().message()),
              HasSubstr("more than one input or output"));
}

TEST(PluginDeclaration, VersionsAndSizesAreChecked) {
  const feedwater_op op = OpOf("good", Copy);
  feedwater_plugin_info info = InfoOf(&op, 1);
  EXPECT_THAT(std::string(CheckPluginAbi(nullptr).message()), HasSubstr("null pointer"));
  info.abi_version = 7;
  EXPECT_THAT(std::string(CheckPluginAbi(&info).message()),
              HasSubstr("built for version 7 of the plug-in interface, and this Feedwater has "
                        "version 1"));
  for (uint32_t feedwater_plugin_info::*size :
       {&feedwater_plugin_info::info_size, &feedwater_plugin_info::op_size,
        &feedwater_plugin_info::port_size, &feedwater_plugin_info::param_size}) {
    for (uint32_t wrong : {0u, 8u, 97u, 1u << 31}) {
      info = InfoOf(&op, 1);
      info.*size = wrong;
      EXPECT_THAT(std::string(CheckPluginAbi(&info).message()), HasSubstr("FEEDWATER_PLUGIN_SIZES"))
          << wrong;
    }
  }
}

TEST(PluginDeclaration, AStructThatHasGrownIsReadAsFarAsItIsKnown) {
  struct NewerOp {
    feedwater_op op;
    uint64_t more = 0;
  };
  NewerOp ops[2] = {{OpOf("first", Copy)}, {OpOf("second", Copy)}};
  feedwater_plugin_info info = InfoOf(&ops[0].op, 2);
  info.op_size = sizeof(NewerOp);
  const auto entries = Read(info);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->at(1).name, "second");
  ops[1].more = 1;
  EXPECT_THAT(std::string(Read(info).status().message()),
              HasSubstr("uses members that this Feedwater does not have"));
}

}  // namespace
}  // namespace feedwater::server
