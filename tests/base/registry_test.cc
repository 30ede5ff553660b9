#include "server/base/registry.h"

#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

struct Pump {
  static constexpr char kKind[] = "pump";
  int power = 0;
};
const Registrar<Pump> kSmall("small", Pump{1});
const Registrar<Pump> kLarge("large", Pump{9});

TEST(Registry, FindsWhatRegisteredItselfBeforeMain) {
  ASSERT_NE(Registry<Pump>::Get().Find("large"), nullptr);
  EXPECT_EQ(Registry<Pump>::Get().Find("large")->power, 9);
  EXPECT_EQ(Registry<Pump>::Get().Find("huge"), nullptr);
  EXPECT_EQ(Registry<Pump>::Get().Names(), (std::vector<std::string>{"large", "small"}));
}

TEST(Registry, ASecondEntryOfAnameIsRefusedAndTheFirstStays) {
  EXPECT_FALSE(Registry<Pump>::Get().Add("small", Pump{5}));
  EXPECT_EQ(Registry<Pump>::Get().Find("small")->power, 1);
}

TEST(Registry, AnUnknownNameIsAnsweredWithTheNearest) {
  EXPECT_EQ(Registry<Pump>::Get().Unknown("lagre"),
            "unknown pump 'lagre', did you mean 'large'? Known: large, small");
}

}  // namespace
}  // namespace feedwater::server
