#include "server/columnar/serve.h"

#include <arrow/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/cpu_info.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "server/columnar/column_walk.h"
#include "server/columnar/held_file.h"
#include "server/columnar/row_writer.h"

namespace feedwater::server {
namespace {

using arrow::Status;

constexpr int64_t kBatchBytes = 8 << 20;  // of a part of a row group, about
constexpr int64_t kMaxBatchRows = 1024;
constexpr int64_t kPageBuffer = 1 << 20;
constexpr char kFileMagic[] = "ARROW1";  // an IPC file begins so, a stream does not

bool ReadFully(int fd, void* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(fd, static_cast<char*>(to) + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

Status WriteFully(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = write(fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status::IOError("the daemon is gone");
    done += static_cast<size_t>(got);
  }
  return Status::OK();
}

class Server {
 public:
  Server(int socket, std::shared_ptr<HeldFile> file, const ColumnarRequest& request)
      : socket_(socket), request_(request), wanted_(request_), file_(std::move(file)) {}

  Status Run() { return request_.is_parquet ? Parquet() : Ipc(); }
  uint64_t rows() const { return writer_ == nullptr ? 0 : writer_->rows(); }

 private:
  // Tells the columns, and makes ready for their rows.
  Status Begin(const std::vector<WalkedColumn>& walked) {
    std::vector<ColumnarColumn> all, staged;
    for (const WalkedColumn& column : walked) {
      all.push_back(column.column);
      if (column.column.is_staged) staged.push_back(column.column);
    }
    const std::string columns = EncodeColumns(all);
    if (columns.size() > kMaxHeaderBytes) return Status::Invalid("has too many columns");
    std::string header;
    PutNumber(kHeaderMark, &header);
    PutNumber(static_cast<uint32_t>(columns.size()), &header);
    ARROW_RETURN_NOT_OK(WriteFully(socket_, header + columns));
    writer_ = std::make_unique<RowWriter>(
        std::move(staged), [this](const std::string& bytes) { return WriteFully(socket_, bytes); });
    return Status::OK();
  }

  Status AddAll(arrow::RecordBatchReader* batches) {
    while (true) {
      std::shared_ptr<arrow::RecordBatch> batch;
      ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
      if (batch == nullptr) return Status::OK();
      ARROW_RETURN_NOT_OK(writer_->Add(*batch));
    }
  }

  Status Ipc() {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = pool_;
    options.use_threads = false;
    char begin[sizeof(kFileMagic) - 1] = {};
    ARROW_RETURN_NOT_OK(file_->ReadAt(0, sizeof(begin), begin).status());
    const bool is_file = std::memcmp(begin, kFileMagic, sizeof(begin)) == 0;
    // The schema first: it says which columns are to be read.
    std::shared_ptr<arrow::Schema> schema;
    if (is_file) {
      ARROW_ASSIGN_OR_RAISE(const auto reader,
                            arrow::ipc::RecordBatchFileReader::Open(file_.get(), options));
      schema = reader->schema();
    } else {
      ARROW_ASSIGN_OR_RAISE(const auto reader,
                            arrow::ipc::RecordBatchStreamReader::Open(file_.get(), options));
      schema = reader->schema();
    }
    ARROW_ASSIGN_OR_RAISE(const std::vector<WalkedColumn> columns, WalkColumns(*schema, wanted_));
    ARROW_RETURN_NOT_OK(Begin(columns));
    for (const WalkedColumn& column : columns) {
      if (column.column.is_staged &&
          (options.included_fields.empty() || options.included_fields.back() != column.path[0]))
        options.included_fields.push_back(column.path[0]);
    }
    // Nothing is wanted: any one column tells how many rows there are.
    if (options.included_fields.empty() && schema->num_fields() > 0)
      options.included_fields.push_back(0);
    if (is_file) {
      ARROW_ASSIGN_OR_RAISE(const auto reader,
                            arrow::ipc::RecordBatchFileReader::Open(file_.get(), options));
      for (int i = 0; i < reader->num_record_batches(); ++i) {
        ARROW_ASSIGN_OR_RAISE(const auto batch, reader->ReadRecordBatch(i));
        ARROW_RETURN_NOT_OK(writer_->Add(*batch));
      }
      return writer_->Flush();
    }
    ARROW_RETURN_NOT_OK(file_->Seek(0));
    ARROW_ASSIGN_OR_RAISE(const auto reader,
                          arrow::ipc::RecordBatchStreamReader::Open(file_.get(), options));
    ARROW_RETURN_NOT_OK(AddAll(reader.get()));
    // Arrow takes the end of the file for the end of the stream.
    if (file_->met_end())
      return Status::Invalid("has no mark at its end: it is cut off, or is still being written");
    return writer_->Flush();
  }

  // The numbers of Parquet's own columns below a field that are wanted.
  void AddLeaves(const parquet::arrow::SchemaField& field, const std::string& name, bool is_wanted,
                 std::vector<int>* leaves) const {
    if (field.is_leaf() && is_wanted) leaves->push_back(field.column_index);
    const bool is_struct = StorageOf(*field.field->type()).id() == arrow::Type::STRUCT;
    for (const parquet::arrow::SchemaField& child : field.children) {
      const std::string below = is_struct ? name + "." + child.field->name() : name;
      AddLeaves(child, below, is_struct ? IsStaged(below) : is_wanted, leaves);
    }
  }
  bool IsStaged(const std::string& name) const { return staged_.count(name) > 0; }

  Status Parquet() {
    parquet::ReaderProperties properties(pool_);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kPageBuffer);
    properties.set_page_checksum_verification(true);  // of pages that have one
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_batch_size(kMaxBatchRows);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(file_, properties));
    builder.memory_pool(pool_)->properties(arrow_properties);
    ARROW_ASSIGN_OR_RAISE(const std::unique_ptr<parquet::arrow::FileReader> reader,
                          builder.Build());
    const parquet::arrow::SchemaManifest& manifest = reader->manifest();
    arrow::FieldVector fields;
    for (const parquet::arrow::SchemaField& field : manifest.schema_fields)
      fields.push_back(field.field);
    ARROW_ASSIGN_OR_RAISE(const std::vector<WalkedColumn> columns,
                          WalkColumns(arrow::Schema(fields), wanted_));
    ARROW_RETURN_NOT_OK(Begin(columns));
    for (const WalkedColumn& column : columns) {
      if (column.column.is_staged) staged_.insert(column.column.spec.name);
    }
    std::vector<int> leaves;
    for (const parquet::arrow::SchemaField& field : manifest.schema_fields)
      AddLeaves(field, field.field->name(), IsStaged(field.field->name()), &leaves);

    const std::shared_ptr<parquet::FileMetaData> metadata = reader->parquet_reader()->metadata();
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      const auto of_group = metadata->RowGroup(group);
      const int64_t rows = of_group->num_rows();
      int64_t bytes = 0;
      for (const int leaf : leaves) {
        const int64_t more =
            std::max<int64_t>(of_group->ColumnChunk(leaf)->total_uncompressed_size(), 0);
        bytes = more > INT64_MAX - bytes ? INT64_MAX : bytes + more;
      }
      const int64_t bytes_a_row = std::max<int64_t>(bytes / std::max<int64_t>(rows, 1), 1);
      reader->set_batch_size(std::clamp<int64_t>(kBatchBytes / bytes_a_row, 1, kMaxBatchRows));
      const uint64_t before = writer_->rows();
      ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader({group}, leaves));
      ARROW_RETURN_NOT_OK(AddAll(batches.get()));
      if (writer_->rows() - before != static_cast<uint64_t>(rows)) {
        return Status::Invalid("announces ", rows, " rows in row group ", group, " and holds ",
                               writer_->rows() - before);
      }
    }
    return writer_->Flush();
  }

  const int socket_;
  const ColumnarRequest request_;
  const Wanted wanted_;
  arrow::MemoryPool* const pool_ = arrow::system_memory_pool();
  const std::shared_ptr<HeldFile> file_;
  std::unique_ptr<RowWriter> writer_;
  std::unordered_set<std::string> staged_;
};

void TellError(int socket, ColumnarError error, std::string text) {
  text.resize(std::min<size_t>(text.size(), kMaxErrorBytes));
  std::string bytes;
  PutNumber(kErrorMark, &bytes);
  PutNumber(static_cast<uint32_t>(error), &bytes);
  PutNumber(static_cast<uint32_t>(text.size()), &bytes);
  (void)WriteFully(socket, bytes + text);
}

}  // namespace

bool ReadRequest(int socket, ColumnarRequest* request) {
  uint32_t bytes = 0;
  if (!ReadFully(socket, &bytes, sizeof(bytes)) || bytes > kMaxRequestBytes) return false;
  std::string text(bytes, '\0');
  return ReadFully(socket, text.data(), text.size()) && DecodeRequest(text, request);
}

void WarmUpArrow() {
  // Which of its allocators Arrow uses where nobody says one.
  setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
  (void)arrow::default_memory_pool();
  (void)arrow::internal::CpuInfo::GetInstance();
}

int ServeColumnar(int socket, int file, const ColumnarRequest& request, bool is_sandboxed) {
  if (!is_sandboxed) {
    TellError(socket, ColumnarError::kMachine,
              "no system-call filter (seccomp) can be set here, and files of others are not "
              "unpacked without one");
    return 1;
  }
  std::shared_ptr<HeldFile> held;
  const auto fail = [&](ColumnarError error, const std::string& text) {
    if (held == nullptr || held->error() == 0) {
      TellError(socket, error, text);
    } else {  // whatever came of it
      std::string number;
      PutNumber(static_cast<uint32_t>(held->error()), &number);
      TellError(socket, ColumnarError::kStorage, number);
    }
    return 1;
  };
  try {
    held = std::make_shared<HeldFile>(file, static_cast<int64_t>(request.file_bytes),
                                      arrow::system_memory_pool());
    Server server(socket, held, request);
    const Status status = server.Run();
    if (!status.ok()) {
      return fail(status.IsOutOfMemory() ? ColumnarError::kMemory : ColumnarError::kDamaged,
                  status.message());
    }
    std::string end;
    PutNumber(kEndMark, &end);
    PutNumber(server.rows(), &end);
    return WriteFully(socket, end).ok() ? 0 : 1;
  } catch (const std::bad_alloc&) {
    return fail(ColumnarError::kMemory, "out of memory");
  } catch (const parquet::ParquetException& error) {
    return fail(ColumnarError::kDamaged, error.what());
  } catch (const std::exception& error) {
    return fail(ColumnarError::kDamaged, error.what());
  }
}

}  // namespace feedwater::server
