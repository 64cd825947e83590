#include "tools/npy.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "core/checked.h"
#include "core/tensor_copy.h"
#include "platform/whole_file.h"

namespace edgewise::tools {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxText = 1 << 16;
constexpr size_t kMaxBytes = kMostBytes;

struct TypeRow {
  ScalarType type;
  std::string_view descr;
};
// NumPy has no bfloat16; it goes as two raw bytes, as ml_dtypes writes it.
constexpr TypeRow kTypes[] = {
    {ScalarType::kByte, "|u1"},     {ScalarType::kChar, "|i1"},     {ScalarType::kShort, "<i2"},
    {ScalarType::kInt, "<i4"},      {ScalarType::kLong, "<i8"},     {ScalarType::kHalf, "<f2"},
    {ScalarType::kFloat, "<f4"},    {ScalarType::kDouble, "<f8"},   {ScalarType::kBool, "|b1"},
    {ScalarType::kUInt16, "<u2"},   {ScalarType::kUInt32, "<u4"},   {ScalarType::kUInt64, "<u8"},
    {ScalarType::kBFloat16, "<V2"}, {ScalarType::kBFloat16, "|V2"},
};

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_file(const std::string& path, const char* mode) {
  return {std::fopen(path.c_str(), mode), [](std::FILE* file) { return std::fclose(file); }};
}

Status broken(const std::string& path, const std::string& what) {
  return error(Code::kInvalidArgument, "[npy] '%s': %s; try numpy.save", path.c_str(),
               what.c_str());
}

// The text of the header, read from left to right.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_spaces();
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::optional<std::string> quoted() {
    skip_spaces();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  std::optional<bool> boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    }
    return std::nullopt;
  }
  std::optional<int64_t> number() {
    skip_spaces();
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[digits] - '0', &value)) {
        return std::nullopt;
      }
    }
    if (digits == 0) return std::nullopt;
    text_.remove_prefix(digits);
    return value;
  }

 private:
  void skip_spaces() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) {
      text_.remove_prefix(1);
    }
  }
  std::string_view text_;
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

std::optional<std::vector<int64_t>> parse_shape(Parser& parser) {
  std::vector<int64_t> shape;
  if (!parser.take('(')) return std::nullopt;
  while (!parser.take(')')) {
    const std::optional<int64_t> size = parser.number();
    if (!size) return std::nullopt;
    shape.push_back(*size);
    if (!parser.take(',')) {
      if (!parser.take(')')) return std::nullopt;
      break;
    }
  }
  return shape;
}

std::optional<Header> parse_header(std::string_view text) {
  Parser parser(text);
  Header header;
  bool has_descr = false;
  bool has_order = false;
  bool has_shape = false;
  if (!parser.take('{')) return std::nullopt;
  while (!parser.take('}')) {
    const std::optional<std::string> key = parser.quoted();
    if (!key || !parser.take(':')) return std::nullopt;
    if (*key == "descr") {
      const std::optional<std::string> descr = parser.quoted();
      if (!descr) return std::nullopt;
      header.descr = *descr;
      has_descr = true;
    } else if (*key == "fortran_order") {
      const std::optional<bool> order = parser.boolean();
      if (!order) return std::nullopt;
      header.fortran_order = *order;
      has_order = true;
    } else if (*key == "shape") {
      const std::optional<std::vector<int64_t>> shape = parse_shape(parser);
      if (!shape) return std::nullopt;
      header.shape = *shape;
      has_shape = true;
    } else {
      return std::nullopt;
    }
    if (!parser.take(',') && !parser.take('}')) return std::nullopt;
    if (has_descr && has_order && has_shape) return header;
  }
  return std::nullopt;
}

Result<Header> read_header(const std::string& path, std::FILE* file) {
  unsigned char head[12];
  if (std::fread(head, 1, 10, file) != 10 ||
      std::string_view(reinterpret_cast<char*>(head), kMagic.size()) != kMagic) {
    return broken(path, "this is no .npy file");
  }
  const int version = head[6];
  size_t length = head[8] | size_t{head[9]} << 8;
  if (version == 2 || version == 3) {
    if (std::fread(head + 10, 1, 2, file) != 2) return broken(path, "the file is truncated");
    length |= size_t{head[10]} << 16 | size_t{head[11]} << 24;
  } else if (version != 1) {
    return broken(path, "versions 1 to 3 are read; got " + std::to_string(version));
  }
  if (length > kMaxText) return broken(path, "the header is too long");
  std::string text(length, '\0');
  if (std::fread(text.data(), 1, length, file) != length) {
    return broken(path, "the file is truncated");
  }
  std::optional<Header> header = parse_header(text);
  if (!header) return broken(path, "the header is damaged or holds a structured type");
  return *std::move(header);
}

}  // namespace

Result<Array> read_npy(const std::string& path) {
  const File file = open_file(path, "rb");
  if (file == nullptr) {
    return error(errno == ENOENT ? Code::kNotFound : Code::kIo, "[npy] '%s' cannot be opened: %s",
                 path.c_str(), std::strerror(errno));
  }
  return read_npy(file.get(), path);
}

Result<Array> read_npy(std::FILE* file, const std::string& path) {
  Result<Header> header = read_header(path, file);
  if (!header) return header.status();
  const TypeRow* row = nullptr;
  for (const TypeRow& candidate : kTypes) {
    // '<u1' and '|u1' say the same of a single byte.
    if (header->descr == candidate.descr ||
        (element_size(candidate.type) == 1 && header->descr.size() == 3 &&
         header->descr.substr(1) == candidate.descr.substr(1))) {
      row = &candidate;
      break;
    }
  }
  if (row == nullptr) return broken(path, "element type '" + header->descr + "' is not taken");
  std::vector<uint8_t> dim_order;
  if (header->fortran_order && header->shape.size() <= kMaxDims) {
    for (size_t i = header->shape.size(); i-- > 0;) dim_order.push_back(static_cast<uint8_t>(i));
  }
  Array array;
  Result<Tensor> tensor =
      Tensor::make(row->type, header->shape, dim_order, nullptr, 0, Dynamism::kStatic);
  if (!tensor) return tensor.status().within(path);
  const size_t nbytes = tensor->nbytes();
  if (nbytes > kMaxBytes) return broken(path, "the array is too large");
  // In steps, so that a header cannot claim more memory than the file has bytes.
  constexpr size_t kStep = size_t{1} << 24;
  while (array.bytes.size() < nbytes) {
    const size_t begin = array.bytes.size();
    const size_t step = std::min(kStep, nbytes - begin);
    array.bytes.resize(begin + step);
    if (std::fread(array.bytes.data() + begin, 1, step, file) != step) {
      return broken(path, "the file is truncated: " + std::to_string(nbytes) + " bytes expected");
    }
  }
  array.tensor = *tensor;
  array.tensor.set_data(array.bytes.data(), nbytes);
  return array;
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  const TypeRow* row = nullptr;
  for (const TypeRow& candidate : kTypes) {
    if (candidate.type == tensor.type()) {
      row = &candidate;
      break;
    }
  }
  if (row == nullptr) {
    return error(Code::kUnsupported, "[npy] %s cannot be written", tensor.describe().c_str());
  }
  std::vector<std::byte> elements(tensor.nbytes());
  Result<Tensor> dense = Tensor::make(tensor.type(), tensor.sizes(), {}, elements.data(),
                                      elements.size(), Dynamism::kStatic);
  if (!dense) return dense.status();
  EDGEWISE_RETURN_IF_ERROR(copy_elements(tensor, *dense));

  std::string text =
      "{'descr': '" + std::string(row->descr) + "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < tensor.rank(); ++i) text += std::to_string(tensor.size(i)) + ", ";
  text += "), }";
  // Head and text together fill a multiple of 64 bytes and end in a newline.
  constexpr size_t kHead = 10;
  text.resize((kHead + text.size() + 1 + 63) / 64 * 64 - kHead, ' ');
  text.back() = '\n';
  std::string head(kMagic);
  head += '\x01';
  head += '\x00';
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);

  return platform::write_whole(path,
                               {std::as_bytes(std::span(head)), std::as_bytes(std::span(text)),
                                std::span<const std::byte>(elements)})
      .within("npy");
}

}  // namespace edgewise::tools
