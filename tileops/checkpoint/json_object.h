// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tileops::checkpoint {

/// A JSON object of a file, read key by key, so that a fault names file, key, expected and found.
/// A key that is absent or null has the value `otherwise`; without one it is a fault.
/// Errors: kIo.
class JsonObject {
 public:
  static JsonObject read(const std::string& path);

  int64_t positive(const char* key, std::optional<int64_t> otherwise = std::nullopt) const;
  double number(const char* key, double otherwise) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key, std::optional<std::string> otherwise = std::nullopt) const;
  /// An object whose every value is a text.
  std::map<std::string, std::string> texts(const char* key) const;
  std::optional<JsonObject> object(const char* key) const;

  const std::string& path() const { return path_; }
  bool has(const char* key) const;

 private:
  struct Json;
  JsonObject(std::string path, std::shared_ptr<const Json> json);
  [[noreturn]] void fault(const char* key, const char* expected) const;

  std::string path_;
  std::shared_ptr<const Json> json_;
};

/// A text from a file as one line of printable ASCII, in quotes.
std::string quoted(const std::string& text);

}  // namespace tileops::checkpoint
