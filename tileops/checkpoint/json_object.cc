// SPDX-License-Identifier: Apache-2.0
#include "tileops/checkpoint/json_object.h"

#include <cmath>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "tileops/core/check.h"

namespace tileops::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kLargest = INT32_MAX;  // of a size or a count
constexpr size_t kLongest = 80;          // characters of a value in a message

std::string one_line(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

struct JsonObject::Json {
  json object;
  /// The value, or null where it is absent or null.
  const json* find(const char* key) const {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
};

JsonObject::JsonObject(std::string path, std::shared_ptr<const Json> json)
    : path_(std::move(path)), json_(std::move(json)) {}

JsonObject JsonObject::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TILEOPS_CHECK(ErrorKind::kIo, file.is_open(), "{}: cannot be opened", path);
  json object = json::parse(file, nullptr, /*allow_exceptions=*/false);
  TILEOPS_CHECK(ErrorKind::kIo, object.is_object(), "{}: expected a JSON object, found {}", path,
                object.is_discarded() ? "malformed JSON" : one_line(object));
  return {path, std::make_shared<const Json>(Json{std::move(object)})};
}

bool JsonObject::has(const char* key) const { return json_->find(key) != nullptr; }

void JsonObject::fault(const char* key, const char* expected) const {
  const json* value = json_->find(key);
  raise(ErrorKind::kIo, "{}: {}: expected {}, found {}", path_, key, expected,
        value == nullptr ? "none" : one_line(*value));
}

int64_t JsonObject::positive(const char* key, std::optional<int64_t> otherwise) const {
  const json* value = json_->find(key);
  if (value == nullptr && otherwise) return *otherwise;
  const bool is_positive =
      value != nullptr && value->is_number_integer() && *value > 0 && *value <= kLargest;
  if (!is_positive) fault(key, "a positive integer");
  return value->get<int64_t>();
}

double JsonObject::number(const char* key, double otherwise) const {
  const json* value = json_->find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fault(key, "a finite number");
  return value->get<double>();
}

bool JsonObject::boolean(const char* key, bool otherwise) const {
  const json* value = json_->find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fault(key, "true or false");
  return value->get<bool>();
}

std::string JsonObject::text(const char* key, std::optional<std::string> otherwise) const {
  const json* value = json_->find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_string()) fault(key, "a text");
  return value->get<std::string>();
}

std::map<std::string, std::string> JsonObject::texts(const char* key) const {
  const json* value = json_->find(key);
  if (value == nullptr || !value->is_object()) fault(key, "an object of texts");
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : value->items()) {
    TILEOPS_CHECK(ErrorKind::kIo, text.is_string(), "{}: {}: {}: expected a text, found {}", path_,
                  key, quoted(name), one_line(text));
    texts.emplace(name, text.get<std::string>());
  }
  return texts;
}

std::optional<JsonObject> JsonObject::object(const char* key) const {
  const json* value = json_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fault(key, "an object");
  return JsonObject(path_ + ": " + key, std::make_shared<const Json>(Json{*value}));
}

std::string quoted(const std::string& text) { return one_line(json(text)); }

}  // namespace tileops::checkpoint
