// What hostile_flood does to data.sock: conversations that are wrong from their beginning, that
// stop half-way, that take wrong turns, or that have nothing but right messages, as fast as they
// go.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/fake_trainer.h"
#include "tests/testing/flood/control_attacks.h"
#include "tests/testing/flood/flood.h"

namespace feedwater::testing {

// Of one thread. What it is made with outlives it.
class DataAttacks {
 public:
  DataAttacks(const FloodOptions& options, Dice* dice, FloodTally* tally, ControlAttacks* control)
      : options_(options), dice_(*dice), tally_(*tally), control_(*control) {}

  void Strangers();  // nothing right from the beginning
  void HalfOpen();   // says hello and is left lying about, up to a handful at a time
  void Session();    // begins rightly
  void Flood();      // nothing but right messages, as fast as they go

 private:
  FakeTrainer Dial();
  // Sends one packet; false when the conversation or the message budget is over.
  bool Say(FakeTrainer* trainer, const void* bytes, size_t size);
  template <typename M>
  bool Say(FakeTrainer* trainer, const M& message);
  // A right message with some of its bits turned, or of another length.
  template <typename M>
  bool SayMutated(FakeTrainer* trainer, const M& message);
  std::string Greet(FakeTrainer* trainer);  // the ticket; "" when nobody answers
  std::optional<FakeTrainer> OpenSession();

  const FloodOptions& options_;
  Dice& dice_;
  FloodTally& tally_;
  ControlAttacks& control_;
  std::vector<FakeTrainer> waiting_;
};

}  // namespace feedwater::testing
