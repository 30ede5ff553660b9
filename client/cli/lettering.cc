#include "client/cli/lettering.h"

#include <opencv2/imgproc.hpp>

#include "server/base/escape.h"

namespace feedwater::cli {
namespace {

constexpr size_t kMostBytes = 4096;  // more is never seen

std::string Shortened(std::string text, bool keeps_its_end) {
  if (text.size() <= kMostBytes) return text;
  return keeps_its_end ? text.substr(text.size() - kMostBytes) : text.substr(0, kMostBytes);
}

}  // namespace

absl::StatusOr<Lettering> Lettering::Create() {
  Lettering lettering;
  lettering.fonts_.reset(pango_ft2_font_map_new());
  lettering.context_.reset(pango_font_map_create_context(lettering.fonts_.get()));
  // Pango ends the process where it finds no font at all; families like "Sans" are always listed.
  const std::unique_ptr<PangoFontDescription, decltype(&pango_font_description_free)> any(
      pango_font_description_from_string("Sans 12"), &pango_font_description_free);
  const std::unique_ptr<PangoFont, GUnref> found(
      pango_font_map_load_font(lettering.fonts_.get(), lettering.context_.get(), any.get()));
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        "no font is installed to write on the picture with: apt-get install fonts-dejavu-core");
  }
  return lettering;
}

Lettering::Block Lettering::Set(const std::string& text, const Style& style, int width) const {
  Block block;
  block.layout_.reset(pango_layout_new(context_.get()));
  PangoLayout* layout = block.layout_.get();
  const std::unique_ptr<PangoFontDescription, decltype(&pango_font_description_free)> font(
      pango_font_description_from_string(style.bold ? "Sans Bold" : "Sans"),
      &pango_font_description_free);
  pango_font_description_set_absolute_size(font.get(), style.size * PANGO_SCALE);
  pango_layout_set_font_description(layout, font.get());
  pango_layout_set_single_paragraph_mode(layout, true);
  pango_layout_set_width(layout, width * PANGO_SCALE);
  pango_layout_set_wrap(layout, PANGO_WRAP_WORD_CHAR);
  if (style.lines > 0) {
    pango_layout_set_height(layout, -style.lines);
    pango_layout_set_ellipsize(layout,
                               style.keeps_its_end ? PANGO_ELLIPSIZE_START : PANGO_ELLIPSIZE_END);
  }
  const std::string shown = server::ToUtf8(Shortened(text, style.keeps_its_end));
  pango_layout_set_text(layout, shown.data(), static_cast<int>(shown.size()));
  return block;
}

int Lettering::Block::Width() const {
  int width = 0, height = 0;
  pango_layout_get_pixel_size(layout_.get(), &width, &height);
  return width;
}

int Lettering::Block::Height() const {
  int width = 0, height = 0;
  pango_layout_get_pixel_size(layout_.get(), &width, &height);
  return height;
}

void Lettering::Block::DrawOn(cv::Mat& picture, int x, int y, const cv::Scalar& color) const {
  PangoRectangle ink;
  pango_layout_get_pixel_extents(layout_.get(), &ink, nullptr);
  const cv::Rect place = cv::Rect(x + ink.x, y + ink.y, ink.width, ink.height) &
                         cv::Rect(0, 0, picture.cols, picture.rows);
  if (place.empty()) return;
  cv::Mat ink_mask(place.height, place.width, CV_8U, cv::Scalar(0));
  FT_Bitmap bitmap = {};
  bitmap.rows = static_cast<unsigned>(ink_mask.rows);
  bitmap.width = static_cast<unsigned>(ink_mask.cols);
  bitmap.pitch = static_cast<int>(ink_mask.step);
  bitmap.buffer = ink_mask.data;
  bitmap.num_grays = 256;
  bitmap.pixel_mode = FT_PIXEL_MODE_GRAY;
  pango_ft2_render_layout(&bitmap, layout_.get(), x - place.x, y - place.y);
  cv::Mat part = picture(place);
  for (int row = 0; row < part.rows; ++row) {
    for (int column = 0; column < part.cols; ++column) {
      const double share = ink_mask.at<uint8_t>(row, column) / 255.0;
      cv::Vec3b& pixel = part.at<cv::Vec3b>(row, column);
      for (int c = 0; c < 3; ++c)
        pixel[c] = cv::saturate_cast<uint8_t>(pixel[c] * (1 - share) + color[c] * share);
    }
  }
}

}  // namespace feedwater::cli
