// SPDX-License-Identifier: Apache-2.0
// A place in the tokens of an expression.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tileops/spec/expr_lexer.h"

namespace tileops::spec {

/// For the parser to derive from.
class TokenCursor {
 protected:
  explicit TokenCursor(std::string_view text) : tokens_(lex_expr(text)) {}

  const Token& peek() const { return tokens_[at_]; }
  /// Whether this symbol or name stands here.
  bool is(std::string_view text) const;
  /// Goes past it where it stands here.
  bool accept(std::string_view text);
  /// Goes past it. Errors: ExprFault S401 where it does not stand here.
  void expect(std::string_view text);
  /// Whether a `for` stands in the parentheses that are open here.
  bool has_loop() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace tileops::spec
