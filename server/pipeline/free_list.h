// Objects that are used again instead of being made anew. Owns all of them; an object keeps its
// contents (and so the capacity of its vectors) between uses. Belongs to one thread.
#pragma once

#include <memory>
#include <vector>

namespace feedwater::server {

template <typename T>
class FreeList {
 public:
  T* Get() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      free_.reserve(all_.size());  // so that Put never allocates
      return all_.back().get();
    }
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void Put(T* object) { free_.push_back(object); }
  size_t in_use() const { return all_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace feedwater::server
