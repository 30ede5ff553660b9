// A small dataset in every format, for suites that enumerate the registry. A new format adds its
// maker here, and the suites fail until it does.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/storage/temp_folder.h"

namespace feedwater::server {

struct SmallDataset {
  std::string yaml;  // over the root "root"
  std::function<void(const TempFolder&)> make;
  int64_t records;
  std::string one_file;  // one that holds records
  size_t record_bytes;   // a size change that keeps the format valid
};

inline std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string CifarRecord(int label, uint64_t seed) {
  return std::string(1, static_cast<char>(label)) + RandomBytes(3072, seed);
}

inline const std::map<std::string, SmallDataset>& SmallDatasets() {
  static const auto* datasets = new std::map<std::string, SmallDataset>{
      {"image_folder",
       {"{format: image_folder, root: root, path: train}",
        [](const TempFolder& folder) {
          folder.Write("train/cat/b.jpg", RandomBytes(100, 1));
          folder.Write("train/cat/a.png", RandomBytes(50, 2));
          folder.Write("train/cat/deep/er/c.jpeg", RandomBytes(70, 3));
          folder.Write("train/dog/x.webp", RandomBytes(1, 4));
        },
        4, "train/cat/b.jpg", 1}},
      {"cifar10",
       {"{format: cifar10, root: root, path: batches}",
        [](const TempFolder& folder) {
          folder.Write("batches/data_batch_1.bin", CifarRecord(3, 1) + CifarRecord(9, 2));
          folder.Write("batches/data_batch_2.bin", CifarRecord(0, 3));
        },
        3, "batches/data_batch_2.bin", 3073}},
      {"mnist",
       {"{format: mnist, root: root, path: raw, height: 2, width: 3}",
        [](const TempFolder& folder) {
          folder.Write(
              "raw/train-images-idx3-ubyte",
              BigEndian(0x803) + BigEndian(4) + BigEndian(2) + BigEndian(3) + RandomBytes(24, 1));
          folder.Write("raw/train-labels-idx1-ubyte",
                       BigEndian(0x801) + BigEndian(4) + std::string("\0\1\11\5", 4));
        },
        4, "", 0}},
  };
  return *datasets;
}

}  // namespace feedwater::server
