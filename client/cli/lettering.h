// Lines of text in pictures, in any script: Pango sets them with the fonts that fontconfig finds.
#pragma once

#include <pango/pangoft2.h>

#include <memory>
#include <opencv2/core.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace feedwater::cli {

struct GUnref {
  void operator()(void* object) const { g_object_unref(object); }
};

// The fonts. Outlives what is set with it.
class Lettering {
 public:
  // FailedPrecondition where no font is installed.
  static absl::StatusOr<Lettering> Create();

  struct Style {
    int size = 12;  // in pixels
    bool bold = false;
    int lines = 1;               // at most; 0: as many as it takes
    bool keeps_its_end = false;  // what is too long loses its beginning: for paths
  };
  static int LineHeight(int size) { return size * 14 / 10; }

  // Text that is at most `width` pixels wide. What is no UTF-8 is shown as U+FFFD.
  class Block {
   public:
    int Width() const;
    int Height() const;
    // With its top left corner at (x, y) of an 8 bit BGR picture.
    void DrawOn(cv::Mat& picture, int x, int y, const cv::Scalar& color) const;

   private:
    friend class Lettering;
    std::unique_ptr<PangoLayout, GUnref> layout_;
  };
  Block Set(const std::string& text, const Style& style, int width) const;

 private:
  Lettering() = default;
  std::unique_ptr<PangoFontMap, GUnref> fonts_;
  std::unique_ptr<PangoContext, GUnref> context_;
};

}  // namespace feedwater::cli
