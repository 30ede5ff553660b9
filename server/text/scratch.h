// Memory that an encoding takes piece by piece from one block, and gives back in the order of a
// stack. It never grows: who finds no room says that the text is too long for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server {

class TextScratch {
 public:
  TextScratch(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  // Null when there is no room. Aligned to 16.
  void* TakeBytes(size_t bytes) {
    const size_t rounded = (bytes + 15) / 16 * 16;
    if (rounded < bytes || rounded > bytes_ - used_) return nullptr;
    void* const taken = data_ + used_;
    used_ += rounded;
    return taken;
  }
  template <typename T>
  T* Take(size_t count) {
    return count > SIZE_MAX / sizeof(T) ? nullptr : static_cast<T*>(TakeBytes(count * sizeof(T)));
  }

  size_t used() const { return used_; }
  void ReleaseTo(size_t used) { used_ = used; }  // all that was taken since used() said so

 private:
  std::byte* const data_;
  const size_t bytes_;
  size_t used_ = 0;
};

// Gives back what was taken while it lived.
class ScratchFrame {
 public:
  explicit ScratchFrame(TextScratch* scratch) : scratch_(scratch), used_(scratch->used()) {}
  ~ScratchFrame() { scratch_->ReleaseTo(used_); }
  ScratchFrame(const ScratchFrame&) = delete;
  ScratchFrame& operator=(const ScratchFrame&) = delete;

 private:
  TextScratch* const scratch_;
  const size_t used_;
};

}  // namespace feedwater::server
