#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "csv", {"{format: csv, root: root, path: tables}",
            [](const TempFolder& folder) {
              folder.Write(
                  "tables/a-0.csv",
                  "id,weight,text\n2,-3,\"in \"\"quotes\"\",\nof two lines\"\n1,0.5,plain");
              folder.Write("tables/a-1.csv", "id,weight,text\r\n-7,1e3,\r\n\r\n8,2,caf\xc3\xa9");
            },
            4, "tables/a-1.csv", 2});

}  // namespace
}  // namespace feedwater::server
