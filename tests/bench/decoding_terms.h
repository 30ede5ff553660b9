// What each step of decoding costs by itself, on photos of one sampling; and how a term is
// measured.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/entropy_decoder.h"
#include "server/codec/jpeg/pixel_kernels.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/jpeg/store_decoder.h"
#include "tests/bench/photo_set.h"

namespace feedwater::bench {

using namespace feedwater::server;        // NOLINT: of programs of one file
using namespace feedwater::server::jpeg;  // NOLINT
using nlohmann::json;

inline void Require(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

class Terms {
 public:
  void Add(const std::string& term, const char* unit, const std::string& set, double got) {
    terms_.push_back({{"term", term}, {"unit", unit}, {"set", set}, {"got", got}});
  }
  json Take() { return std::move(terms_); }

 private:
  json terms_ = json::array();
};

// The median over `rounds` of the CPU seconds of one call of `run`, which is repeated until a round
// takes a millisecond.
inline double SecondsOf(const std::function<void()>& run, int rounds) {
  std::vector<double> seconds;
  int64_t repeats = 1;
  while (static_cast<int>(seconds.size()) < rounds) {
    const int64_t start = ThreadCpuNs();
    for (int64_t i = 0; i < repeats; ++i) run();
    const int64_t took = ThreadCpuNs() - start;
    if (took < 1'000'000) {
      repeats *= 2;
    } else {
      seconds.push_back(1e-9 * static_cast<double>(took) / static_cast<double>(repeats));
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

// One photo's coefficients, row of blocks by row of blocks, with its blocks by kind.
struct Decoded {
  struct Row {
    std::vector<int16_t> coefficients;
    BlockLists lists;
  };
  JpegFrame frame;
  std::vector<Row> rows[kMaxComponents];
  std::vector<SeekPoint> points;  // where each row of MCUs begins
  std::vector<uint8_t> document;
  size_t blocks = 0;

  int blocks_wide(int c) const { return frame.mcus_wide() * frame.shape.h[c]; }
};

// The rows of blocks of a row of MCUs, all wanted.
inline void Want(Decoded& to, int mcu_row, WantedMcuRow* wanted) {
  const FrameShape& shape = to.frame.shape;
  for (int c = 0; c < shape.components; ++c) {
    for (int v = 0; v < shape.v[c]; ++v) {
      Decoded::Row& row = to.rows[c][mcu_row * shape.v[c] + v];
      row.lists.Clear();
      (*wanted)[c][v] = {0, to.blocks_wide(c), row.coefficients.data(), &row.lists};
    }
  }
}

// Runs over all rows of MCUs, and tells `after` of each while it is in the core's cache.
inline bool DecodeScan(const EntropyDecoder& entropy, ScanCursor& cursor, Decoded& to,
                       const std::function<void(int mcu_row)>& after) {
  for (int mcu_row = 0; mcu_row < to.frame.mcus_high(); ++mcu_row) {
    WantedMcuRow wanted = {};
    Want(to, mcu_row, &wanted);
    if (!entropy.Decode(cursor, 0, to.frame.mcus_wide(), wanted)) return false;
    if (after) after(mcu_row);
  }
  return true;
}

inline bool PackInto(const Decoded& from, StorePacker& packer) {
  const FrameShape& shape = from.frame.shape;
  if (!packer.Start(shape, from.frame.quant)) return false;
  for (int c = 0; c < shape.components; ++c) {
    for (int row = 0; row < shape.blocks_high(c); ++row) {
      if (!packer.AddRow(c, from.rows[c][row].coefficients.data())) return false;
    }
  }
  return true;
}

// False for what only libjpeg-turbo decodes.
inline bool Decode(const Photo& photo, EntropyDecoder& entropy, StorePacker& packer, Decoded* to) {
  if (ReadFrame(photo.scan_bytes(), &to->frame) != Uncovered::kNone) return false;
  const FrameShape& shape = to->frame.shape;
  for (int c = 0; c < shape.components; ++c) {
    to->rows[c].resize(static_cast<size_t>(to->frame.mcus_high()) * shape.v[c]);
    for (Decoded::Row& row : to->rows[c]) {
      row.coefficients.resize((static_cast<size_t>(to->blocks_wide(c)) + 1) * kBlockSamples);
      row.lists.Reserve(to->blocks_wide(c));
      to->blocks += to->blocks_wide(c);
    }
  }
  ScanCursor cursor;
  to->points.assign(1, SeekPoint());
  bool fits = true;
  const auto note = [&](int) {
    SeekPoint point;
    fits = fits && cursor.Point(shape.components, &point);
    to->points.push_back(point);
  };
  const auto scan = photo.scan_bytes().subspan(to->frame.scan);
  if (entropy.Start(to->frame) != Uncovered::kNone ||
      !cursor.Begin(scan, SeekPoint(), scan.size()) || !DecodeScan(entropy, cursor, *to, note) ||
      !fits || !PackInto(*to, packer))
    return false;
  const auto document = packer.Finish();
  to->document.assign(document.begin(), document.end());
  return true;
}

// All blocks of a document to samples, and no more.
inline void BlocksOf(const StoreView& view, Planes& planes) {
  const FrameShape& shape = view.shape();
  planes.Start(shape, {0, 0, shape.size.width, shape.size.height}, 1);
  for (int mcu_row = planes.mcu_rows().first; mcu_row < planes.mcu_rows().end(); ++mcu_row) {
    for (int c = 0; c < shape.components; ++c) {
      const BlockSpan rows = planes.block_rows_of_mcu_row(c, mcu_row);
      for (int row = rows.first; row < rows.end(); ++row) {
        PackedBlocks from;
        int skip;
        Require(view.Seek(c, row, 0, &from, &skip) &&
                    TransformPacked(from, skip, shape.blocks_wide(c), view.quant(c), 8,
                                    planes.BlockRow(c, row), planes.stride(c)),
                "unpacking");
      }
    }
  }
}

// Steps of decoding, on the photos of one sampling.
inline void DecodingTerms(const std::string& set, const std::vector<Photo*>& photos, int rounds,
                          Terms* terms) {
  EntropyDecoder entropy;
  StorePacker packer;
  std::map<const Photo*, std::unique_ptr<Decoded>> decoded;
  std::vector<Photo*> covered;
  double encoded = 0, bytes = 0, paired = 0, blocks = 0, pixels = 0, stored = 0,
         of_kind[kBlockKinds] = {};
  for (Photo* photo : photos) {
    auto made = std::make_unique<Decoded>();
    if (!Decode(*photo, entropy, packer, made.get())) continue;
    encoded += static_cast<double>(photo->encoded_bytes);
    bytes += static_cast<double>(photo->encoded_bytes - made->frame.scan);
    paired += static_cast<double>(made->points[made->frame.mcus_high() / 2 * 2].byte);
    blocks += static_cast<double>(made->blocks);
    pixels += static_cast<double>(photo->size.width) * photo->size.height;
    stored += static_cast<double>(made->document.size());
    for (int c = 0; c < made->frame.shape.components; ++c) {
      for (const Decoded::Row& row : made->rows[c]) {
        for (int kind = 0; kind < kBlockKinds; ++kind)
          of_kind[kind] += static_cast<double>(row.lists.count[kind]);
      }
    }
    covered.push_back(photo);
    decoded[photo] = std::move(made);
  }
  if (covered.empty()) return;

  const PixelKernels& kernels = ActivePixelKernels();
  std::vector<uint8_t> samples(size_t{8} * (65'536 + kRowPadding));
  const auto transform = [&](const JpegFrame& frame, int c, Decoded::Row& row) {
    const size_t stride = row.coefficients.size() / 8 + kRowPadding;
    Require(kernels.transform_row(row.coefficients.data(), row.lists, frame.quant[c], 8,
                                  samples.data(), stride),
            "the inverse DCT");
  };
  // The blocks of one kind alone. Each row is taken several times, so that its coefficients are in
  // the core's cache, as they are when they have just been decoded.
  constexpr int kRepeats = 8;
  const auto transform_kind = [&](Photo& photo, int kind) {
    Decoded& from = *decoded[&photo];
    for (int c = 0; c < from.frame.shape.components; ++c) {
      for (Decoded::Row& row : from.rows[c]) {
        size_t count[kBlockKinds];
        std::copy_n(row.lists.count, kBlockKinds, count);
        row.lists.Clear();
        row.lists.count[kind] = count[kind];
        for (int i = 0; i < kRepeats; ++i) transform(from.frame, c, row);
        std::copy_n(count, kBlockKinds, row.lists.count);
      }
    }
  };
  ScanCursor cursor, below;
  const auto scan_of = [&](const Photo& photo) {
    return photo.scan_bytes().subspan(decoded[&photo]->frame.scan);
  };
  const auto start = [&](Photo& photo) -> Decoded& {
    Decoded& to = *decoded[&photo];
    Require(entropy.Start(to.frame) == Uncovered::kNone, "making tables");
    const auto scan = scan_of(photo);
    Require(cursor.Begin(scan, SeekPoint(), scan.size()), "starting a scan");
    return to;
  };
  Planes planes;
  StoreDecoder store;
  std::vector<Variant> variants = {
      {"tables",
       [&](Photo& photo) {
         JpegFrame frame;
         Require(ReadFrame(photo.scan_bytes(), &frame) == Uncovered::kNone &&
                     entropy.Start(frame) == Uncovered::kNone,
                 "making tables");
       }},
      {"start", [&](Photo& photo) { start(photo); }},
      {"decode",
       [&](Photo& photo) {
         Require(DecodeScan(entropy, cursor, start(photo), nullptr), "decoding");
       }},
      {"both",
       [&](Photo& photo) {
         Decoded& to = start(photo);
         const auto scan = scan_of(photo);
         for (int row = 0; row + 1 < to.frame.mcus_high(); row += 2) {
           WantedMcuRow wanted = {}, wanted_below = {};
           Want(to, row, &wanted);
           Want(to, row + 1, &wanted_below);
           const auto begin = [&](ScanCursor& at, int mcu_row) {
             return at.Begin(scan, to.points[mcu_row], to.points[mcu_row + 1].byte + size_t{1});
           };
           Require(begin(cursor, row) && begin(below, row + 1) &&
                       entropy.DecodeBoth({&cursor, 0, &wanted}, {&below, 0, &wanted_below}, 0,
                                          to.frame.mcus_wide()),
                   "decoding two rows");
         }
       }},
      {"skip",
       [&](Photo& photo) {
         const Decoded& to = start(photo);
         for (int row = 0; row < to.frame.mcus_high(); ++row)
           Require(entropy.Skip(cursor, to.frame.mcus_wide()), "skipping");
       }},
      {"transform",
       [&](Photo& photo) {
         Decoded& to = start(photo);
         const FrameShape& shape = to.frame.shape;
         const auto transform_rows = [&](int mcu_row) {
           for (int c = 0; c < shape.components; ++c) {
             for (int v = 0; v < shape.v[c]; ++v)
               transform(to.frame, c, to.rows[c][mcu_row * shape.v[c] + v]);
           }
         };
         Require(DecodeScan(entropy, cursor, to, transform_rows), "decoding");
       }},
      {"dc", [&](Photo& photo) { transform_kind(photo, kDcOnly); }},
      {"quarter", [&](Photo& photo) { transform_kind(photo, kQuarter); }},
      {"full", [&](Photo& photo) { transform_kind(photo, kFull); }},
      {"pack",
       [&](Photo& photo) {
         Require(PackInto(*decoded[&photo], packer), "packing");
         packer.Finish();
       }},
      {"verify", [&](Photo& photo) { Check(VerifyStore(decoded[&photo]->document)); }},
      {"unpack",
       [&](Photo& photo) {
         const auto view = StoreView::Open(decoded[&photo]->document);
         Check(view.status());
         BlocksOf(*view, planes);
       }},
      {"region",
       [&](Photo& photo) {
         Check(store.Open(decoded[&photo]->document));
         Check(store.Start({0, 0, photo.size.width, photo.size.height}, 1));
         const uint8_t* rows[RowSource::kMaxRows];
         for (int y = 0; y < photo.size.height; y += RowSource::kMaxRows)
           Check(store.Read(std::min(RowSource::kMaxRows, photo.size.height - y), rows));
       }},
  };
  MeasureByTurns(covered, variants, rounds);
  const auto ns = [&](absl::string_view name) {
    const auto at = std::find_if(variants.begin(), variants.end(),
                                 [&](const Variant& v) { return v.name == name; });
    return 1e9 * at->cpu_s;
  };
  const auto add = [&](const char* term, const char* unit, double got) {
    terms->Add(term, unit, set, got);
  };
  const auto images = static_cast<double>(covered.size());
  add("headers and Huffman tables", "µs/image", ns("tables") / images / 1000);
  add("unstuffing", "ns/byte", std::max(0.0, ns("start") - ns("tables")) / bytes);
  add("Huffman decoding", "ns/byte", (ns("decode") - ns("start")) / bytes);
  add("Huffman decoding", "ns/block", (ns("decode") - ns("start")) / blocks);
  add("Huffman decoding, two rows at once", "ns/byte", (ns("both") - ns("start")) / paired);
  add("skipping", "ns/byte", (ns("skip") - ns("start")) / bytes);
  add("skipping", "ns/block", (ns("skip") - ns("start")) / blocks);
  const char* kinds[kBlockKinds][3] = {{"dc", "inverse DCT, DC only", "blocks of DC only"},
                                       {"quarter", "inverse DCT, 4x4", "blocks of 4x4"},
                                       {"full", "inverse DCT, full", "blocks that are full"}};
  for (int kind = 0; kind < kBlockKinds; ++kind) {
    const auto& [name, cost, share] = kinds[kind];
    if (of_kind[kind] > 0) add(cost, "ns/block", ns(name) / kRepeats / of_kind[kind]);
    add(share, "%", 100 * of_kind[kind] / blocks);
  }
  add("inverse DCT, as decoded", "ns/block", (ns("transform") - ns("decode")) / blocks);
  add("packing for the store", "ns/block", ns("pack") / blocks);
  add("checking a document", "ns/byte", ns("verify") / stored);
  add("store to samples", "ns/block", ns("unpack") / blocks);
  add("upsampling and colour", "ns/pixel", (ns("region") - ns("unpack")) / pixels);
  add("store bytes ÷ JPEG bytes", "x", stored / encoded);
}

}  // namespace feedwater::bench
