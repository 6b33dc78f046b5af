// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tileops/core/error_testing.h"

namespace tileops {
namespace {

namespace fs = std::filesystem;

std::string image(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, '\0');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::map<std::string, Tensor> parse(const std::string& bytes) {
  auto owner = std::make_shared<const std::string>(bytes);
  return parse_safetensors(owner->data(), owner->size(), "x.safetensors", owner);
}

/// The text after "OSError: x.safetensors: ".
std::string fault(const std::string& bytes) {
  const std::string text = error_of([&] { parse(bytes); });
  EXPECT_EQ(text.find('\n'), std::string::npos);
  constexpr std::string_view kPrefix = "OSError: x.safetensors: ";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

std::string fault(const std::string& header, size_t data_bytes) {
  return fault(image(header, data_bytes));
}

std::string bytes_of(const Tensor& tensor) {
  return {tensor.data_as<const char>(),
          static_cast<size_t>(tensor.num_elements() * dtype_bytes(tensor.dtype()))};
}

class SafetensorsFiles : public ::testing::Test {
 protected:
  SafetensorsFiles() {
    std::string pattern = (fs::temp_directory_path() / "tileops_core_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SafetensorsFiles() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  size_t num_files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string header = "{\"__metadata__\":{\"made\":\"here\"}," +
                             entry("w", "F32", "[2, 3]", "[0, 24]") + "," +
                             entry("none", "BF16", "[0, 5]", "[24, 24]") + "," +
                             entry("scalar", "U8", "[]", "[24, 25]") + "}  ";
  std::string bytes = image(header, 25);
  bytes.back() = 7;
  std::map<std::string, std::string> metadata;
  auto owner = std::make_shared<const std::string>(bytes);
  const auto tensors =
      parse_safetensors(owner->data(), owner->size(), "x.safetensors", owner, &metadata);
  EXPECT_EQ(metadata.at("made"), "here");
  EXPECT_EQ(tensors.size(), 3u);
  EXPECT_EQ(to_string(tensors.at("w")), "float32[2, 3] on cpu");
  EXPECT_EQ(to_string(tensors.at("none")), "bfloat16[0, 5] on cpu");
  EXPECT_EQ(tensors.at("scalar").at({}), 7.0);
}

TEST(Safetensors, AFileMayBeEmpty) { EXPECT_TRUE(parse(image("{}", 0)).empty()); }

TEST(Safetensors, MisalignedDataIsServedFromACopy) {
  std::string bytes = image(
      "{" + entry("pad", "U8", "[1]", "[0, 1]") + "," + entry("w", "F64", "[1]", "[1, 9]") + "}",
      9);
  const double value = 2.5;
  std::memcpy(bytes.data() + bytes.size() - 8, &value, 8);
  const Tensor tensor = parse(bytes).at("w");
  EXPECT_EQ(tensor.at({0}), 2.5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 8, 0u);
}

TEST(Safetensors, TruncationIsNamed) {
  EXPECT_EQ(fault(""), "truncated: the file has 0 bytes, and the header's length alone takes 8");
  EXPECT_EQ(fault("1234567"),
            "truncated: the file has 7 bytes, and the header's length alone takes 8");
  EXPECT_EQ(fault(image("{}", 0).substr(0, 9)),
            "truncated: the header takes 2 bytes, and 1 follow its length");
  const uint64_t huge = 100'000'001;
  EXPECT_EQ(fault(std::string(reinterpret_cast<const char*>(&huge), 8)),
            "a header of 100000001 bytes is beyond the limit of 100000000");
  EXPECT_EQ(fault(std::string(8, '\xff')),
            "a header of 18446744073709551615 bytes is beyond the limit of 100000000");
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string whole = image("{" + entry("w", "F32", "[2]", "[0, 8]") + "}", 8);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(error_of([&] { parse(whole.substr(0, length)); }).substr(0, 24),
              "OSError: x.safetensors: ");
  }
  EXPECT_EQ(parse(whole).size(), 1u);
}

TEST(Safetensors, MalformedJsonIsNamed) {
  EXPECT_EQ(fault("", 0), "the header does not begin with '{'; is it a safetensors file?");
  EXPECT_EQ(fault("[]", 0), "the header does not begin with '{'; is it a safetensors file?");
  EXPECT_EQ(fault("{", 0), "the header is not valid JSON at its byte 2");
  EXPECT_EQ(fault("{} x", 0), "the header is not valid JSON at its byte 4");
  EXPECT_EQ(fault("{\"\xff\":1}", 0), "the header is not valid JSON at its byte 3");
  EXPECT_EQ(fault("{\"w\":" + std::string(100000, '['), 0), "tensor w: must be an object");
}

TEST(Safetensors, MalformedEntriesAreNamed) {
  EXPECT_EQ(fault("{\"w\":3}", 0), "tensor w: must be an object");
  EXPECT_EQ(fault("{\"w\":{}}", 0), "tensor w: dtype is missing");
  EXPECT_EQ(fault("{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}", 0),
            "tensor w: data_offsets is missing");
  EXPECT_EQ(fault("{\"w\":{\"dtype\":null}}", 0), "tensor w: dtype must be a string");
  EXPECT_EQ(fault("{\"w\":{\"dtype\":[\"F32\"]}}", 0), "tensor w: dtype must be a string");
  EXPECT_EQ(fault("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0),
            "tensor w: dtype appears twice");
  EXPECT_EQ(fault("{\"w\":{\"type\":\"F32\"}}", 0), "tensor w: key type is not of the format");
  EXPECT_EQ(fault("{" + entry("w", "F8_E8M0", "[]", "[0, 1]") + "}", 1),
            "tensor w: dtype F8_E8M0 is not served");
  for (const char* shape : {"3", "[-1]", "[1.5]", "[\"1\"]", "[[1]]", "[true]", "[null]", "{}",
                            "[99999999999999999999]"}) {
    EXPECT_EQ(fault("{" + entry("w", "F32", shape, "[0, 4]") + "}", 4),
              "tensor w: shape must be a list of integers from 0 on")
        << shape;
  }
  EXPECT_EQ(fault("{" + entry("w", "F32", "[1,1,1,1,1,1,1,1,1]", "[0, 4]") + "}", 4),
            "tensor w: shape has more than 8 numbers");
  EXPECT_EQ(fault("{" + entry("w", "F32", "[1]", "[0]") + "}", 4),
            "tensor w: data_offsets has 1 numbers, not 2");
  EXPECT_EQ(fault("{" + entry("w", "F32", "[1]", "[0,4,4]") + "}", 4),
            "tensor w: data_offsets has more than 2 numbers");
}

TEST(Safetensors, DoubledNamesAndBadMetadataAreNamed) {
  const std::string w = entry("w", "U8", "[1]", "[0, 1]");
  EXPECT_EQ(fault("{" + w + "," + w + "}", 1), "tensor w: appears twice");
  const std::string metadata = "\"__metadata__\":{\"a\":\"b\"}";
  EXPECT_EQ(fault("{" + metadata + "," + metadata + "}", 0), "__metadata__: appears twice");
  EXPECT_EQ(fault("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0),
            "__metadata__: key a appears twice");
  for (const char* value : {"3", "[]", "{\"a\":1}", "{\"a\":{}}", "\"a\""}) {
    EXPECT_EQ(fault("{\"__metadata__\":" + std::string(value) + "}", 0),
              "__metadata__: must map strings to strings");
  }
}

TEST(Safetensors, OffsetsMustFitFileShapeAndEachOther) {
  EXPECT_EQ(fault("{" + entry("w", "F32", "[24]", "[0, 96]") + "}", 80),
            "tensor w: data_offsets [0, 96] end beyond the file's 80 data bytes");
  EXPECT_EQ(fault("{" + entry("w", "F32", "[1]", "[4, 0]") + "}", 4),
            "tensor w: data_offsets [4, 0] end before they begin");
  EXPECT_EQ(fault("{" + entry("w", "F32", "[2, 3]", "[0, 23]") + "}", 23),
            "tensor w: data_offsets [0, 23] hold 23 bytes, but float32[2, 3] takes 24");
  EXPECT_EQ(fault("{" + entry("w", "F32", "[4611686018427387904, 2]", "[0, 0]") + "}", 0),
            "tensor w: shape [4611686018427387904, 2] takes more bytes than int64 can count");
  EXPECT_EQ(fault("{" + entry("w", "U8", "[9223372036854775808]", "[0, 0]") + "}", 0),
            "tensor w: shape has a size of 9223372036854775808, beyond int64");
  EXPECT_EQ(fault("{" + entry("w", "U8", "[1]", "[0, 18446744073709551615]") + "}", 1),
            "tensor w: data_offsets [0, 18446744073709551615] end beyond the file's 1 data bytes");
  EXPECT_EQ(
      fault("{" + entry("a", "U8", "[4]", "[0, 4]") + "," + entry("b", "U8", "[4]", "[2, 6]") + "}",
            6),
      "tensor b: data_offsets [2, 6] overlap those of tensor a, which end at 4");
  EXPECT_EQ(
      fault("{" + entry("a", "U8", "[4]", "[0, 4]") + "," + entry("b", "U8", "[4]", "[5, 9]") + "}",
            9),
      "tensor b: data_offsets [5, 9] leave a hole of 1 bytes before them");
  EXPECT_EQ(fault("{" + entry("a", "U8", "[4]", "[0, 4]") + "}", 7),
            "the last 3 of 7 data bytes belong to no tensor");
}

TEST(Safetensors, NamesCannotBreakTheLine) {
  EXPECT_EQ(fault("{\"a\\nb\":3}", 0), "tensor a\\x0ab: must be an object");
  std::string name;  // 101 characters of two bytes
  for (int i = 0; i < 101; ++i) name += "\u00e9";
  EXPECT_EQ(fault("{\"x" + name + "\":3}", 0),
            "tensor x" + name.substr(0, 198) + "...: must be an object");
}

TEST_F(SafetensorsFiles, WriteAndReadBackEveryDType) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.emplace_back(dtype_name(dtype),
                         Tensor::from_values({3}, dtype, std::vector<double>{0, 1, 1}));
  }
  tensors.emplace_back("none", Tensor::empty({0, 3}, DType::kF32));
  tensors.emplace_back(
      "transposed \"q\"",
      Tensor::from_values({2, 2}, DType::kI8, std::vector<double>{0, 1, 2, 3}).transpose(0, 1));
  write_safetensors(path("all.safetensors"), tensors, {{"key", "va\"lue"}});
  const auto file = SafetensorsFile::open(path("all.safetensors"));
  EXPECT_EQ(file.metadata().at("key"), "va\"lue");
  ASSERT_EQ(file.names().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    EXPECT_EQ(file.names()[i], name);
    const Tensor back = file.tensor(name);
    ASSERT_EQ(to_string(back), to_string(tensor.contiguous()));
    EXPECT_EQ(bytes_of(back), bytes_of(tensor.contiguous())) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(back.data()) %
                  static_cast<uintptr_t>(dtype_bytes(back.dtype())),
              0u);
  }
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(SafetensorsFiles, TensorsOutliveTheFileAndNeverChangeIt) {
  write_safetensors(path("a"),
                    {{"w", Tensor::from_values({1}, DType::kF32, std::vector<double>{3})}});
  const Tensor tensor = SafetensorsFile::open(path("a")).tensor("w");
  tensor.data_as<float>()[0] = 9;
  EXPECT_EQ(SafetensorsFile::open(path("a")).tensor("w").at({0}), 3.0);
}

TEST_F(SafetensorsFiles, WritingReplacesAnOpenFileWhole) {
  write_safetensors(path("a"),
                    {{"w", Tensor::from_values({1}, DType::kF32, std::vector<double>{3})}});
  const auto old = SafetensorsFile::open(path("a"));
  write_safetensors(path("a"),
                    {{"v", Tensor::from_values({1}, DType::kF32, std::vector<double>{4})}});
  EXPECT_EQ(old.tensor("w").at({0}), 3.0);
  EXPECT_EQ(SafetensorsFile::open(path("a")).names(), std::vector<std::string>{"v"});
}

TEST_F(SafetensorsFiles, AnAbsentTensorIsNamedWithThoseHeld) {
  const auto file =
      SafetensorsFile::open(write("a", image("{" + entry("v", "U8", "[1]", "[0, 1]") + "," +
                                                 entry("u", "U8", "[1]", "[1, 2]") + "}",
                                             2)));
  EXPECT_TRUE(file.contains("u"));
  EXPECT_FALSE(file.contains("w"));
  EXPECT_EQ(error_of([&] { file.tensor("w"); }),
            "OSError: " + path("a") + ": there is no tensor w; it holds: v, u");
}

TEST_F(SafetensorsFiles, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(error_of([&] { SafetensorsFile::open(path("absent")); }),
            "OSError: " + path("absent") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(error_of([&] { SafetensorsFile::open(folder_.string()); }),
            "OSError: " + folder_.string() + ": is not a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { SafetensorsFile::open(path("pipe")); }),
            "OSError: " + path("pipe") + ": is not a regular file");
  EXPECT_EQ(error_of([&] { SafetensorsFile::open(write("empty", "")); }),
            "OSError: " + path("empty") +
                ": truncated: the file has 0 bytes, and the header's length alone takes 8");
}

TEST_F(SafetensorsFiles, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  const Tensor tensor = Tensor::empty({1}, DType::kF32);
  const std::string at = path("a");
  EXPECT_EQ(error_of([&] {
              write_safetensors(path("no/a"), {{"w", tensor}});
            }),
            "OSError: " + path("no/a") + ": cannot be created: No such file or directory");
  EXPECT_EQ(error_of([&] {
              write_safetensors(at, {{"w", tensor}, {"w", tensor}});
            }),
            "ValueError: " + at + ": tensor w: appears twice");
  EXPECT_EQ(error_of([&] {
              write_safetensors(at, {{"w", Tensor()}});
            }),
            "ValueError: " + at + ": tensor w: is absent");
  EXPECT_EQ(error_of([&] {
              write_safetensors(at, {{"__metadata__", tensor}});
            }),
            "ValueError: " + at + ": a tensor cannot be named __metadata__");
  EXPECT_EQ(error_of([&] {
              write_safetensors(at, {{"\xff", tensor}});
            }),
            "ValueError: " + at + ": the name \"\xef\xbf\xbd\" is not UTF-8");
  EXPECT_EQ(
      error_of([&] {
        write_safetensors(at, {{"w", Tensor::empty({1}, DType::kF32, kMetaDevice)}});
      }),
      "ValueError: " + at + ": tensor w: must be on the cpu to be written, got float32[1] on meta");
  fs::create_directory(path("folder"));
  EXPECT_EQ(error_of([&] {
              write_safetensors(path("folder"), {{"w", tensor}});
            }),
            "OSError: " + path("folder") + ": cannot be replaced: Is a directory");
  EXPECT_EQ(num_files(), 1u);
}

}  // namespace
}  // namespace tileops
