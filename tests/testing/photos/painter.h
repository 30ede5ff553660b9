// Draws photos that cost a JPEG codec what real ones cost: regions with their own colour, texture
// and sharpness, edges of different softness, detail whose amplitude falls with its frequency, and
// grain. What they show is nothing; what matters is that sizes, bits per pixel and their spread are
// those of ImageNet. The same number gives the same pixels.
#pragma once

#include <cstdint>
#include <vector>

namespace feedwater::testing {

struct Photo {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // width * height * 3
  // How it is to be stored as JPEG.
  int quality = 0;
  enum class Sampling { k444, k422, k420, kGray } sampling = Sampling::k444;
};

// Reuses its planes from photo to photo; one for each thread.
class Painter {
 public:
  // The photo `number` of the set `seed`; photos of one class share their colours. `photo` is
  // reused.
  void Paint(uint64_t seed, uint64_t number, int photo_class, Photo* photo);

 private:
  class Random;
  struct Noise;

  void AddNoise(Random& random, const Noise& noise, std::vector<float>* plane);
  void AddShape(Random& random, float hue, float detail);
  void Finish(Random& random, float grain, Photo* photo);

  int width_ = 0, height_ = 0;
  std::vector<float> light_, red_,
      blue_;  // brightness and two colour differences, 0..255 and around 0
  std::vector<float> texture_, sharpness_;  // fine detail, and how much of it each place shows
  std::vector<float> grid_, row_, weight_;  // of AddNoise
  std::vector<int> cell_;
};

}  // namespace feedwater::testing
