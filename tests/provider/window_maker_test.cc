#include "server/provider/window_maker.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

namespace feedwater::server {
namespace {

TEST(WindowMaker, UsersTakeTurns) {
  WindowMaker maker;
  ASSERT_TRUE(maker.Start().ok());
  std::promise<void> begun, all_asked, all_made;
  std::vector<int> made;  // on its thread alone
  maker.Make(7, [&] {
    begun.set_value();
    all_asked.get_future().wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < 3; ++i) maker.Make(7, [&, i] { made.push_back(70 + i); });
  maker.Make(5, [&] { made.push_back(50); });
  maker.Make(9, [&] { made.push_back(90); });
  maker.Make(7, [&] { all_made.set_value(); });
  all_asked.set_value();
  all_made.get_future().wait();
  EXPECT_EQ(made, (std::vector<int>{90, 50, 70, 71, 72}));
}

TEST(WindowMaker, NothingIsMadeOrKeptBeforeItStartsAndAfterItStops) {
  WindowMaker maker;
  const auto held = std::make_shared<int>(0);
  maker.Make(1, [held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  ASSERT_TRUE(maker.Start().ok());
  std::promise<void> begun;
  maker.Make(1, [&] { begun.set_value(); });
  begun.get_future().wait();
  maker.Stop();
  maker.Make(1, [held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

}  // namespace
}  // namespace feedwater::server
