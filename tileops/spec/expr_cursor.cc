// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/expr_cursor.h"

#include <fmt/format.h>

#include "tileops/spec/expr.h"

namespace tileops::spec {

bool TokenCursor::is(std::string_view text) const {
  const Token& token = peek();
  return (token.kind == Token::Kind::kSymbol || token.kind == Token::Kind::kName) &&
         token.text == text;
}

bool TokenCursor::accept(std::string_view text) {
  if (!is(text)) return false;
  ++at_;
  return true;
}

void TokenCursor::expect(std::string_view text) {
  if (accept(text)) return;
  const Token& token = peek();
  const bool at_end = token.kind == Token::Kind::kEnd;
  throw ExprFault("S401", at_end ? fmt::format("'{}' is missing at the end", text)
                                 : fmt::format("'{}' is missing before '{}'", text, token.text));
}

bool TokenCursor::has_loop() const {
  int depth = 0;
  for (size_t i = at_; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    if (token.kind == Token::Kind::kName && token.text == "for" && depth == 0) return true;
    if (token.kind != Token::Kind::kSymbol) continue;
    if (token.text == "(" || token.text == "[") ++depth;
    if ((token.text == ")" || token.text == "]") && --depth < 0) return false;
  }
  return false;
}

}  // namespace tileops::spec
