// Puts the channels into random order, all orders alike likely, as torchvision's
// RandomChannelPermutation does.
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {};

class RandomChannelPermutation : public PointOp {
 public:
  explicit RandomChannelPermutation(const Params&) {}

  void Append(Draws draws, PointProgram* program) const override {
    program->Permute(ChannelOrder(&draws));
  }
};

const OpRegistrar kRegistrar(OpSchema<Params>("random_channel_permutation")
                                 .Summary("Puts the channels of an image into random order.")
                                 .Input(kColourImage)
                                 .OutputLikeInput()
                                 .Randomness(Randomness::kPerSample)
                                 .Cost("Little more than a copy.")
                                 .Example("- random_channel_permutation: {in: image}")
                                 .AlsoKnownAs("torchvision", {"RandomChannelPermutation"})
                                 .NearestTo("torchvision", {"permute_channels"})
                                 .AlsoKnownAs("Albumentations", {"ChannelShuffle"})
                                 .Create<RandomChannelPermutation>());

}  // namespace
}  // namespace feedwater::server
