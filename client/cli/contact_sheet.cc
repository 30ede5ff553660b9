#include "client/cli/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/lettering.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

// Lengths in pixels, colours in BGR.
constexpr int kMargin = 24, kGap = 14, kApart = 30, kBandGap = 60;
constexpr int kTitleSize = 24, kSubtitleSize = 14, kHeadSize = 14, kCaptionSize = 13,
              kFootnoteSize = 12;
const cv::Scalar kPaper(250, 249, 248), kCard(240, 237, 235), kFrame(216, 210, 206);
const cv::Scalar kInk(40, 34, 30), kPaleInk(122, 112, 104);
const cv::Scalar kRed(60, 52, 200), kPaleRed(232, 230, 252);

cv::Mat Fitted(const cv::Mat& picture, int side) {
  const double fit =
      std::min(static_cast<double>(side) / picture.cols, static_cast<double>(side) / picture.rows);
  const double scale = fit >= 1 ? std::floor(fit) : fit;
  const cv::Size size(std::clamp(static_cast<int>(std::lround(picture.cols * scale)), 1, side),
                      std::clamp(static_cast<int>(std::lround(picture.rows * scale)), 1, side));
  if (size == picture.size()) return picture;
  cv::Mat fitted;
  cv::resize(picture, fitted, size, 0, 0, fit >= 1 ? cv::INTER_NEAREST : cv::INTER_AREA);
  return fitted;
}

class SheetPainter {
 public:
  SheetPainter(const ContactSheet& sheet, const Lettering& lettering)
      : sheet_(sheet), lettering_(lettering), side_(sheet.cell_side) {
    const int columns = static_cast<int>(sheet.columns.size());
    band_width_ = columns * (side_ + kGap) - kGap + (HasGap() ? kApart - kGap : 0);
    for (const auto& row : sheet.rows) {
      for (const SheetCell& cell : row) {
        caption_lines_ = std::max(caption_lines_, static_cast<int>(cell.captions.size()));
        has_paths_ |= !cell.path.empty();
      }
    }
    const int rows = static_cast<int>(sheet.rows.size());
    while (rows_of_band_ = (rows + bands_ - 1) / bands_,
           bands_ < rows && rows_of_band_ * RowHeight() > std::max(kLowSheet, 2 * Width())) {
      ++bands_;
    }
    int subtitles = 0;
    for (const std::string& subtitle : sheet.subtitles) {
      subtitles_.push_back(lettering.Set(subtitle, {.size = kSubtitleSize, .lines = 0}, Inside()));
      subtitles += subtitles_.back().Height();
    }
    rows_top_ = kMargin + Lettering::LineHeight(kTitleSize) + 6 + subtitles + 16 +
                Lettering::LineHeight(kHeadSize) + 6;
  }

  cv::Mat Paint() {
    image_ =
        cv::Mat(rows_top_ + rows_of_band_ * RowHeight() - kGap + kMargin, Width(), CV_8UC3, kPaper);
    int y = kMargin;
    lettering_.Set(sheet_.title, {.size = kTitleSize, .bold = true}, Inside())
        .DrawOn(image_, kMargin, y, kInk);
    y += Lettering::LineHeight(kTitleSize) + 6;
    for (const Lettering::Block& subtitle : subtitles_) {
      subtitle.DrawOn(image_, kMargin, y, kPaleInk);
      y += subtitle.Height();
    }
    for (int band = 0; band < bands_; ++band) {
      for (size_t column = 0; column < sheet_.columns.size(); ++column) {
        lettering_.Set(sheet_.columns[column], {.size = kHeadSize, .bold = true}, side_)
            .DrawOn(image_, Left(band, column), rows_top_ - Lettering::LineHeight(kHeadSize) - 6,
                    kInk);
      }
    }
    for (int row = 0; row < static_cast<int>(sheet_.rows.size()); ++row) {
      for (size_t column = 0; column < sheet_.rows[row].size(); ++column) {
        PaintCell(sheet_.rows[row][column], Left(row / rows_of_band_, column),
                  rows_top_ + row % rows_of_band_ * RowHeight());
      }
    }
    return image_;
  }

 private:
  static constexpr int kMinWidth = 480, kLowSheet = 1800;

  bool HasGap() const {
    return sheet_.set_apart > 0 && sheet_.set_apart < static_cast<int>(sheet_.columns.size());
  }
  int Width() const {
    return std::max(2 * kMargin + bands_ * (band_width_ + kBandGap) - kBandGap, kMinWidth);
  }
  int Inside() const { return Width() - 2 * kMargin; }
  int Left(int band, size_t column) const {
    const int apart = HasGap() && static_cast<int>(column) >= sheet_.set_apart ? kApart - kGap : 0;
    return kMargin + band * (band_width_ + kBandGap) + static_cast<int>(column) * (side_ + kGap) +
           apart;
  }
  int RowHeight() const {
    return side_ + 5 + caption_lines_ * Lettering::LineHeight(kCaptionSize) +
           (has_paths_ ? 2 : 1) * Lettering::LineHeight(kFootnoteSize) + kGap;
  }

  void PaintCell(const SheetCell& cell, int x, int y) {
    const cv::Rect card(x, y, side_, side_);
    if (cell.problem.empty()) {
      cv::rectangle(image_, card, kCard, cv::FILLED);
      if (cell.text.empty()) {
        PaintPicture(cell.picture, card);
      } else {
        PaintText(cell.text, card, kInk);
      }
      cv::rectangle(image_, card, kFrame);
    } else {
      cv::rectangle(image_, card, kPaleRed, cv::FILLED);
      cv::rectangle(image_, card, kRed, 2);
      PaintText(cell.problem, card, kRed);
    }
    int below = y + side_ + 5;
    for (const std::string& caption : cell.captions) {
      lettering_.Set(caption, {.size = kCaptionSize}, side_).DrawOn(image_, x, below, kInk);
      below += Lettering::LineHeight(kCaptionSize);
    }
    lettering_.Set(cell.footnote, {.size = kFootnoteSize}, side_)
        .DrawOn(image_, x, below, kPaleInk);
    below += Lettering::LineHeight(kFootnoteSize);
    if (cell.path.empty()) return;
    lettering_.Set(cell.path, {.size = kFootnoteSize, .keeps_its_end = true}, side_)
        .DrawOn(image_, x, below, kPaleInk);
  }

  void PaintPicture(const cv::Mat& picture, const cv::Rect& card) {
    if (picture.empty()) return;
    const cv::Mat fitted = Fitted(picture, side_);
    fitted.copyTo(image_(cv::Rect(card.x + (side_ - fitted.cols) / 2,
                                  card.y + (side_ - fitted.rows) / 2, fitted.cols, fitted.rows)));
  }

  void PaintText(const std::string& text, const cv::Rect& card, const cv::Scalar& ink) {
    constexpr int kInset = 10;
    const int lines = (side_ - 2 * kInset) / Lettering::LineHeight(kFootnoteSize);
    lettering_.Set(text, {.size = kFootnoteSize, .lines = lines}, side_ - 2 * kInset)
        .DrawOn(image_, card.x + kInset, card.y + kInset, ink);
  }

  const ContactSheet& sheet_;
  const Lettering& lettering_;
  const int side_;
  // Rows stand in bands beside each other where they would make a tall strip.
  int bands_ = 1, rows_of_band_ = 0, band_width_ = 0;
  int rows_top_ = 0, caption_lines_ = 0;
  bool has_paths_ = false;
  std::vector<Lettering::Block> subtitles_;
  cv::Mat image_;
};

}  // namespace

absl::StatusOr<cv::Mat> FitIntoCell(const cv::Mat& picture, int cell_side) {
  try {
    return Fitted(picture, cell_side);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(error.what());
  }
}

absl::StatusOr<cv::Mat> Draw(const ContactSheet& sheet) {
  FW_ASSIGN_OR_RETURN(const Lettering lettering, Lettering::Create());
  try {
    return SheetPainter(sheet, lettering).Paint();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sheet cannot be drawn; take fewer samples or draws: ", error.what()));
  }
}

}  // namespace feedwater::cli
