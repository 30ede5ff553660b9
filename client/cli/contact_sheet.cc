#include "client/cli/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace feedwater::cli {
namespace {

// Lengths in pixels, colours in BGR.
constexpr int kMargin = 24, kGap = 14, kApart = 30;
constexpr int kTitleSize = 24, kSubtitleSize = 14, kHeadSize = 14, kCaptionSize = 13,
              kFootnoteSize = 12;
const cv::Scalar kPaper(250, 249, 248), kCard(240, 237, 235), kFrame(216, 210, 206);
const cv::Scalar kInk(40, 34, 30), kPaleInk(122, 112, 104);
const cv::Scalar kRed(60, 52, 200), kPaleRed(232, 230, 252);

// Text that is drawn several times too large and averaged down, because OpenCV's line fonts are
// rough at the size of a caption.
class Text {
 public:
  Text(std::string text, int size, bool bold = false)
      : text_(Printable(std::move(text))), size_(size), bold_(bold) {}

  int Width() const {
    int baseline = 0;
    const cv::Size size = cv::getTextSize(text_, kFace, Scale(), Thickness(), &baseline);
    return (size.width + kFiner - 1) / kFiner;
  }

  // Cut with "..." where it is wider.
  Text& FitInto(int width) {
    if (Width() <= width) return *this;
    while (!text_.empty()) {
      text_.pop_back();
      const Text shorter(text_ + "...", size_, bold_);
      if (shorter.Width() > width) continue;
      text_ += "...";
      break;
    }
    return *this;
  }

  // With the top left corner of its line at (x, y).
  void DrawOn(cv::Mat& sheet, int x, int y, const cv::Scalar& color) const {
    const cv::Rect place =
        cv::Rect(x - 2, y, Width() + 4, LineHeight()) & cv::Rect(0, 0, sheet.cols, sheet.rows);
    if (place.empty()) return;
    cv::Mat fine(place.height * kFiner, place.width * kFiner, CV_8U, cv::Scalar(0)), mask;
    cv::putText(fine, text_, {(x - place.x) * kFiner, size_ * kFiner}, kFace, Scale(), 255,
                Thickness(), cv::LINE_AA);
    cv::resize(fine, mask, place.size(), 0, 0, cv::INTER_AREA);
    cv::Mat part = sheet(place);
    for (int row = 0; row < part.rows; ++row) {
      for (int column = 0; column < part.cols; ++column) {
        const double share = mask.at<uint8_t>(row, column) / 255.0;
        cv::Vec3b& pixel = part.at<cv::Vec3b>(row, column);
        for (int c = 0; c < 3; ++c) {
          pixel[c] = cv::saturate_cast<uint8_t>(pixel[c] * (1 - share) + color[c] * share);
        }
      }
    }
  }

  int LineHeight() const { return size_ * 14 / 10; }

 private:
  static constexpr int kFace = cv::FONT_HERSHEY_SIMPLEX, kFiner = 4;
  static constexpr double kCapHeight = 22;  // of the font at scale 1, in pixels

  // The fonts have ASCII only.
  static std::string Printable(std::string text) {
    std::string plain;
    for (unsigned char c : text) {
      if ((c & 0xc0) == 0x80) continue;  // the rest of a UTF-8 character
      plain += c >= 32 && c < 127 ? static_cast<char>(c) : '?';
    }
    return plain;
  }
  double Scale() const { return 0.75 * size_ * kFiner / kCapHeight; }
  int Thickness() const { return std::max(1, static_cast<int>(size_ * (bold_ ? 0.62 : 0.36))); }

  std::string text_;
  int size_;
  bool bold_;
};

// Words put into lines of at most `width` pixels; words that are wider are broken.
std::vector<Text> Wrap(const std::string& text, int size, int width) {
  std::vector<Text> lines;
  std::string line;
  const auto fits = [&](const std::string& candidate) {
    return Text(candidate, size).Width() <= width;
  };
  for (absl::string_view piece : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    std::string word(piece);
    const std::string longer = line.empty() ? word : absl::StrCat(line, " ", word);
    if (fits(longer)) {
      line = longer;
      continue;
    }
    if (!line.empty()) lines.emplace_back(line, size);
    while (!fits(word) && word.size() > 1) {
      size_t cut = word.size() - 1;
      while (cut > 1 && !fits(word.substr(0, cut))) --cut;
      lines.emplace_back(word.substr(0, cut), size);
      word.erase(0, cut);
    }
    line = word;
  }
  if (!line.empty()) lines.emplace_back(line, size);
  return lines;
}

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
  explicit SheetPainter(const ContactSheet& sheet) : sheet_(sheet), side_(sheet.cell_side) {
    const int columns = static_cast<int>(sheet.columns.size());
    width_ = std::max(
        2 * kMargin + columns * (side_ + kGap) - kGap + (HasGap() ? kApart - kGap : 0), kMinWidth);
    for (const std::string& subtitle : sheet.subtitles) {
      for (Text& line : Wrap(subtitle, kSubtitleSize, width_ - 2 * kMargin)) {
        subtitles_.push_back(std::move(line));
      }
    }
    for (const auto& row : sheet.rows) {
      for (const SheetCell& cell : row) {
        caption_lines_ = std::max(caption_lines_, static_cast<int>(cell.captions.size()));
      }
    }
    rows_top_ = kMargin + Text("", kTitleSize).LineHeight() + 6 +
                static_cast<int>(subtitles_.size()) * Text("", kSubtitleSize).LineHeight() + 16 +
                Text("", kHeadSize).LineHeight() + 6;
  }

  cv::Mat Paint() {
    const int rows = static_cast<int>(sheet_.rows.size());
    image_ = cv::Mat(rows_top_ + rows * RowHeight() - kGap + kMargin, width_, CV_8UC3, kPaper);
    int y = kMargin;
    Text title(sheet_.title, kTitleSize, /*bold=*/true);
    title.FitInto(width_ - 2 * kMargin).DrawOn(image_, kMargin, y, kInk);
    y += title.LineHeight() + 6;
    for (const Text& line : subtitles_) {
      line.DrawOn(image_, kMargin, y, kPaleInk);
      y += line.LineHeight();
    }
    for (size_t column = 0; column < sheet_.columns.size(); ++column) {
      Text head(sheet_.columns[column], kHeadSize, /*bold=*/true);
      head.FitInto(side_).DrawOn(image_, Left(column), rows_top_ - head.LineHeight() - 6, kInk);
    }
    for (int row = 0; row < rows; ++row) {
      for (size_t column = 0; column < sheet_.rows[row].size(); ++column) {
        PaintCell(sheet_.rows[row][column], Left(column), rows_top_ + row * RowHeight());
      }
    }
    return image_;
  }

 private:
  static constexpr int kMinWidth = 480;

  bool HasGap() const {
    return sheet_.set_apart > 0 && sheet_.set_apart < static_cast<int>(sheet_.columns.size());
  }
  int Left(size_t column) const {
    const int apart = HasGap() && static_cast<int>(column) >= sheet_.set_apart ? kApart - kGap : 0;
    return kMargin + static_cast<int>(column) * (side_ + kGap) + apart;
  }
  int RowHeight() const {
    return side_ + 5 + caption_lines_ * Text("", kCaptionSize).LineHeight() +
           Text("", kFootnoteSize).LineHeight() + kGap;
  }

  void PaintCell(const SheetCell& cell, int x, int y) {
    const cv::Rect card(x, y, side_, side_);
    if (cell.problem.empty()) {
      cv::rectangle(image_, card, kCard, cv::FILLED);
      PaintPicture(cell.picture, card);
      cv::rectangle(image_, card, kFrame);
    } else {
      cv::rectangle(image_, card, kPaleRed, cv::FILLED);
      cv::rectangle(image_, card, kRed, 2);
      PaintProblem(cell.problem, card);
    }
    int below = y + side_ + 5;
    for (const std::string& caption : cell.captions) {
      Text line(caption, kCaptionSize);
      line.FitInto(side_).DrawOn(image_, x, below, kInk);
      below += line.LineHeight();
    }
    Text(cell.footnote, kFootnoteSize).FitInto(side_).DrawOn(image_, x, below, kPaleInk);
  }

  void PaintPicture(const cv::Mat& picture, const cv::Rect& card) {
    if (picture.empty()) return;
    const cv::Mat fitted = Fitted(picture, side_);
    fitted.copyTo(image_(cv::Rect(card.x + (side_ - fitted.cols) / 2,
                                  card.y + (side_ - fitted.rows) / 2, fitted.cols, fitted.rows)));
  }

  void PaintProblem(const std::string& problem, const cv::Rect& card) {
    constexpr int kInset = 10;
    const std::vector<Text> lines = Wrap(problem, kFootnoteSize, side_ - 2 * kInset);
    const int height = Text("", kFootnoteSize).LineHeight();
    const int shown = std::min(static_cast<int>(lines.size()), (side_ - 2 * kInset) / height);
    for (int i = 0; i < shown; ++i) {
      lines[i].DrawOn(image_, card.x + kInset, card.y + kInset + i * height, kRed);
    }
  }

  const ContactSheet& sheet_;
  const int side_;
  int width_ = 0, rows_top_ = 0, caption_lines_ = 0;
  std::vector<Text> subtitles_;
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
  try {
    return SheetPainter(sheet).Paint();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sheet cannot be drawn; take fewer samples or draws: ", error.what()));
  }
}

}  // namespace feedwater::cli
