// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "tileops/core/check.h"

namespace tileops::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataName = "__metadata__";

constexpr std::array<std::pair<std::string_view, DType>, kNumDTypes> kDTypes = {{
    {"F64", DType::kF64},
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"F8_E4M3", DType::kE4M3},
    {"F8_E5M2", DType::kE5M2},
    {"I64", DType::kI64},
    {"I32", DType::kI32},
    {"I16", DType::kI16},
    {"I8", DType::kI8},
    {"U8", DType::kU8},
    {"BOOL", DType::kBool},
}};

/// Reads the header's JSON as events, so that doubled keys are seen, nothing nests deeper than the
/// format does, and a hostile header costs no more memory than its own size.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& source, Header& header) : source_(source), header_(header) {}

  bool null() override { unexpected(); }
  bool boolean(bool) override { unexpected(); }
  bool number_integer(number_integer_t) override { unexpected(); }
  bool number_float(number_float_t, const string_t&) override { unexpected(); }
  bool binary(binary_t&) override { unexpected(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::kNumbers) unexpected();
    const size_t limit = field_ == Field::kShape ? kMaxRank : 2;
    if (numbers_.size() == limit) {
      fault("{} has more than {} numbers", field_name(), limit);
    }
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      *metadata_value_ = text;
      at_ = At::kMetadataKeys;
    } else if (at_ == At::kDType) {
      const auto* known = std::find_if(kDTypes.begin(), kDTypes.end(),
                                       [&](const auto& pair) { return pair.first == text; });
      if (known == kDTypes.end()) fault("dtype {} is not served", printable(text));
      entry().dtype = known->second;
      at_ = At::kFields;
    } else {
      unexpected();
    }
    return true;
  }

  bool start_object(size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kNames;
    } else if (at_ == At::kEntry) {
      seen_fields_ = {};
      at_ = At::kFields;
    } else if (at_ == At::kMetadata) {
      at_ = At::kMetadataKeys;
    } else {
      unexpected();
    }
    return true;
  }

  bool key(string_t& key) override {
    if (at_ == At::kNames) {
      start_entry(key);
    } else if (at_ == At::kFields) {
      start_field(key);
    } else {
      const auto [it, inserted] = header_.metadata.try_emplace(key);
      if (!inserted) fault("key {} appears twice", printable(key));
      metadata_value_ = &it->second;
      at_ = At::kMetadataValue;
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::kFields) {
      for (const Field field : {Field::kDType, Field::kShape, Field::kOffsets}) {
        field_ = field;
        if (!seen_fields_[static_cast<size_t>(field)]) fault("{} is missing", field_name());
      }
    }
    at_ = at_ == At::kNames ? At::kEnd : At::kNames;
    return true;
  }

  bool start_array(size_t) override {
    if (at_ != At::kArray) unexpected();
    numbers_.clear();
    at_ = At::kNumbers;
    return true;
  }

  bool end_array() override {
    if (field_ == Field::kShape) {
      for (const uint64_t size : numbers_) {
        if (std::cmp_greater(size, INT64_MAX)) fault("shape has a size of {}, beyond int64", size);
        entry().shape.push_back(static_cast<int64_t>(size));
      }
    } else {
      if (numbers_.size() != 2) fault("data_offsets has {} numbers, not 2", numbers_.size());
      entry().begin = numbers_[0];
      entry().end = numbers_[1];
    }
    at_ = At::kFields;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    raise(ErrorKind::kIo, "{}: the header is not valid JSON at its byte {}", source_, position);
  }

 private:
  enum class At {
    kStart,
    kNames,
    kEntry,
    kFields,
    kDType,
    kArray,
    kNumbers,
    kMetadata,
    kMetadataKeys,
    kMetadataValue,
    kEnd,
  };
  enum class Field { kDType, kShape, kOffsets };
  static constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};

  Entry& entry() { return header_.entries.back(); }
  std::string_view field_name() const { return kFieldNames[static_cast<size_t>(field_)]; }

  void start_entry(const std::string& name) {
    is_metadata_ = name == kMetadataName;
    if (is_metadata_) {
      at_ = At::kMetadata;
    } else {
      header_.entries.push_back({.name = name});
      at_ = At::kEntry;
    }
    if (!seen_names_.insert(name).second) fault("appears twice");
  }

  void start_field(const std::string& key) {
    const auto* known = std::find(kFieldNames.begin(), kFieldNames.end(), key);
    if (known == kFieldNames.end()) fault("key {} is not of the format", printable(key));
    field_ = static_cast<Field>(known - kFieldNames.begin());
    if (std::exchange(seen_fields_[static_cast<size_t>(field_)], true)) {
      fault("{} appears twice", field_name());
    }
    at_ = field_ == Field::kDType ? At::kDType : At::kArray;
  }

  template <class... Args>
  [[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
    raise(ErrorKind::kIo, "{}: {}: {}", source_,
          is_metadata_ ? std::string(kMetadataName) : "tensor " + printable(entry().name),
          fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void unexpected() {
    switch (at_) {
      case At::kEntry:
        fault("must be an object");
      case At::kDType:
        fault("dtype must be a string");
      case At::kArray:
      case At::kNumbers:
        fault("{} must be a list of integers from 0 on", field_name());
      case At::kMetadata:
      case At::kMetadataValue:
        fault("must map strings to strings");
      default:
        raise(ErrorKind::kIo, "{}: the header must be a JSON object", source_);
    }
  }

  const std::string& source_;
  Header& header_;
  At at_ = At::kStart;
  Field field_ = Field::kDType;
  std::array<bool, 3> seen_fields_{};
  bool is_metadata_ = false;
  std::unordered_set<std::string> seen_names_;
  std::vector<uint64_t> numbers_;
  std::string* metadata_value_ = nullptr;
};

/// The bytes that shape and dtype ask for; none where they are beyond int64.
std::optional<uint64_t> bytes_of(const Entry& entry) {
  int64_t bytes = dtype_bytes(entry.dtype);
  bool is_empty = false;
  for (const int64_t size : entry.shape) {
    is_empty |= size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<uint64_t>(bytes);
}

void check_entry(const Entry& entry, uint64_t data_bytes, const std::string& source) {
  const auto check = [&](bool holds, const auto& text) {
    TILEOPS_CHECK(ErrorKind::kIo, holds, "{}: tensor {}: {}", source, printable(entry.name),
                  text());
  };
  check(entry.begin <= entry.end, [&] {
    return fmt::format("data_offsets [{}, {}] end before they begin", entry.begin, entry.end);
  });
  check(entry.end <= data_bytes, [&] {
    return fmt::format("data_offsets [{}, {}] end beyond the file's {} data bytes", entry.begin,
                       entry.end, data_bytes);
  });
  const std::optional<uint64_t> bytes = bytes_of(entry);
  check(bytes.has_value(), [&] {
    return fmt::format("shape {} takes more bytes than int64 can count", to_string(entry.shape));
  });
  check(*bytes == entry.end - entry.begin, [&] {
    return fmt::format("data_offsets [{}, {}] hold {} bytes, but {}{} takes {}", entry.begin,
                       entry.end, entry.end - entry.begin, dtype_name(entry.dtype),
                       to_string(entry.shape), *bytes);
  });
}

/// The tensors must cover the data bytes, each once.
void check_cover(const std::vector<Entry>& entries, uint64_t data_bytes,
                 const std::string& source) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t covered = 0;
  const Entry* previous = nullptr;
  for (const Entry* entry : order) {
    TILEOPS_CHECK(
        ErrorKind::kIo, entry->begin >= covered,
        "{}: tensor {}: data_offsets [{}, {}] overlap those of tensor {}, which end at {}", source,
        printable(entry->name), entry->begin, entry->end, printable(previous->name), covered);
    TILEOPS_CHECK(ErrorKind::kIo, entry->begin == covered,
                  "{}: tensor {}: data_offsets [{}, {}] leave a hole of {} bytes before them",
                  source, printable(entry->name), entry->begin, entry->end, entry->begin - covered);
    covered = entry->end;
    previous = entry;
  }
  TILEOPS_CHECK(ErrorKind::kIo, covered == data_bytes,
                "{}: the last {} of {} data bytes belong to no tensor", source,
                data_bytes - covered, data_bytes);
}

}  // namespace

std::string_view format_dtype_name(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].first;
}

std::string printable(std::string_view name) {
  constexpr size_t kMaxLength = 200;
  std::string text;
  size_t length = std::min(name.size(), kMaxLength);
  const auto is_continuation = [&](size_t i) { return (name[i] & 0xc0) == 0x80; };
  while (length > 0 && length < name.size() && is_continuation(length)) --length;
  for (const char c : name.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return length < name.size() ? text + "..." : text;
}

Header parse_header(std::string_view image, const std::string& source) {
  TILEOPS_CHECK(ErrorKind::kIo, image.size() >= kLengthBytes,
                "{}: truncated: the file has {} bytes, and the header's length alone takes {}",
                source, image.size(), kLengthBytes);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, image.data(), kLengthBytes);
  const size_t rest = image.size() - kLengthBytes;
  TILEOPS_CHECK(ErrorKind::kIo, header_bytes <= kMaxHeaderBytes,
                "{}: a header of {} bytes is beyond the limit of {}", source, header_bytes,
                kMaxHeaderBytes);
  TILEOPS_CHECK(ErrorKind::kIo, header_bytes <= rest,
                "{}: truncated: the header takes {} bytes, and {} follow its length", source,
                header_bytes, rest);
  const std::string_view text = image.substr(kLengthBytes, header_bytes);
  TILEOPS_CHECK(ErrorKind::kIo, text.starts_with('{'),
                "{}: the header does not begin with '{{'; is it a safetensors file?", source);
  Header header;
  header.data_offset = kLengthBytes + header_bytes;
  HeaderReader reader(source, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  const uint64_t data_bytes = rest - header_bytes;
  for (const Entry& entry : header.entries) check_entry(entry, data_bytes, source);
  check_cover(header.entries, data_bytes, source);
  return header;
}

}  // namespace tileops::safetensors
