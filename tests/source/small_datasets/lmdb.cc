#include "tests/source/lmdb_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "lmdb", {"{format: lmdb, root: root, path: db}",
             [](const TempFolder& folder) {
               const std::map<std::string, std::string> records = {
                   {"a", RandomBytes(20, 1)}, {"b", RandomBytes(1100, 2)}, {"cc", "last"}};
               // A page that is free ends the file, as after a record was removed.
               folder.Write("db/data.mdb",
                            LmdbText(records).text() + std::string(LmdbText::kPage, '\0'));
             },
             3, "", 0});

}  // namespace
}  // namespace feedwater::server
