// SPDX-License-Identifier: Apache-2.0
// The tokens of an expression.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tileops::spec {

struct Token {
  enum class Kind : uint8_t { kName, kInt, kFloat, kString, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  int32_t position = 0;
  int64_t integer = 0;
  double real = 0;
  std::string text;
};

/// The tokens, kEnd last. Errors: ExprFault.
std::vector<Token> lex_expr(std::string_view text);

}  // namespace tileops::spec
