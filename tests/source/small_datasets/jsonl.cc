#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

constexpr char kFirst[] = R"({"id": 1, "text": "caf\u00e9", "ids": [1, 2, 3], "box": {"xy": []}}
)";
constexpr char kOthers[] = R"({"ids": [], "box": {"xy": [[0.5, 1], [2, 3]]}, "text": "", "id": 2}

{"id": 3, "text": "x", "ids": [7], "box": {"xy": [[1, 2]]}}
)";

const Registrar<SmallDataset> kRegistrar("jsonl", {"{format: jsonl, root: root, path: lines}",
                                                   [](const TempFolder& folder) {
                                                     folder.Write("lines/a-0.jsonl",
                                                                  std::string(kFirst) + kOthers);
                                                     folder.Write("lines/a-1.jsonl", kFirst);
                                                   },
                                                   4, "lines/a-1.jsonl", sizeof(kFirst) - 1});

}  // namespace
}  // namespace feedwater::server
