// The bytes before each frame of HTTP/2, written out by hand, and what a client may send.
#include "server/service/http2_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr uint8_t kHeaders = Http2Frame::kHeaders, kContinuation = Http2Frame::kContinuation,
                  kData = Http2Frame::kData, kEnd = Http2Frame::kEndHeaders;

absl::Status CheckAll(const std::vector<Http2Frame>& frames, int* calls = nullptr) {
  ClientFrameRules rules;
  for (const Http2Frame& frame : frames) {
    bool opens = false;
    if (absl::Status status = rules.Check(frame, &opens); !status.ok()) return status;
    if (calls != nullptr) *calls += opens;
  }
  return absl::OkStatus();
}

TEST(Http2Frames, TheHeadOfAFrameIsNineBytes) {
  using namespace std::string_literals;
  const Http2Frame frame = ReadFrameHead("\x01\x02\x03\x01\x05\x80\x00\x00\x07"s);
  EXPECT_EQ(frame.length, 0x010203u);
  EXPECT_EQ(frame.type, Http2Frame::kHeaders);
  EXPECT_TRUE(frame.ends_stream());
  EXPECT_EQ(frame.stream, 7u);  // the reserved bit does not count
  EXPECT_EQ(GoAwayFrame("no"), "\0\0\x0a\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0bno"s);
}

TEST(Http2Frames, ACutterGivesEachFrameItsBytes) {
  FrameCutter cutter;
  EXPECT_TRUE(cutter.between_frames());
  cutter.Begin({5, kData, 0, 1});
  EXPECT_EQ(cutter.Rest(100), 14u);
  EXPECT_EQ(cutter.Rest(10), 10u);
  cutter.Pass(10);
  EXPECT_FALSE(cutter.between_frames());
  cutter.Pass(4);
  EXPECT_TRUE(cutter.between_frames());
}

TEST(ClientFrameRules, CallsOfAClientPass) {
  int calls = 0;
  EXPECT_EQ(CheckAll({{0, Http2Frame::kSettings, 0, 0},
                      {200, kHeaders, kEnd, 1},
                      {16384, kData, 0, 1},
                      {100, kHeaders, 0, 3},
                      {100, kContinuation, kEnd, 3},
                      {9, kData, Http2Frame::kEndStream, 3},
                      {8, 6, 0, 0}},
                     &calls),
            absl::OkStatus());
  EXPECT_EQ(calls, 2);
}

TEST(ClientFrameRules, WhatNoClientSendsIsRefused) {
  struct Case {
    std::vector<Http2Frame> frames;
    const char* says;
  };
  std::vector<Http2Frame> endless = {{4000, kHeaders, 0, 1}};
  for (int i = 0; i < 5; ++i) endless.push_back({4000, kContinuation, 0, 1});
  std::vector<Http2Frame> empty = {{0, kHeaders, 0, 1}};
  for (int i = 0; i < 2000; ++i) empty.push_back({0, kContinuation, 0, 1});
  for (const Case& c : std::vector<Case>{
           {{{16385, kData, 0, 1}}, "16385"},
           {endless, "headers of more than"},
           {empty, "headers of more than"},
           {{{9, kContinuation, kEnd, 1}}, "break up"},
           {{{9, kHeaders, 0, 1}, {9, kData, 0, 1}}, "break up"},
           {{{9, kHeaders, 0, 1}, {9, kContinuation, kEnd, 3}}, "break up"},
           {{{9, kHeaders, kEnd, 2}}, "stream 2"},
           {{{9, kHeaders, kEnd, 0}}, "stream 0"},
           {{{9, kHeaders, kEnd, 5}, {9, kHeaders, kEnd, 5}}, "stream 5"},
       }) {
    const absl::Status status = CheckAll(c.frames);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace feedwater::server
