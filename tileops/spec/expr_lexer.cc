// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/expr_lexer.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "tileops/spec/expr.h"

namespace tileops::spec {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::array<std::string_view, 5> kLongSymbols = {"//", "==", "!=", "<=", ">="};
constexpr std::string_view kSymbols = "+-*/%<>()[],.";

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (true) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
      Token token;
      token.position = static_cast<int32_t>(at_);
      if (at_ == text_.size()) {
        tokens_.push_back(token);
        return std::move(tokens_);
      }
      read(token);
      tokens_.push_back(std::move(token));
    }
  }

 private:
  void read(Token& token) {
    const char c = text_[at_];
    if (is_letter(c)) return read_name(token);
    if (is_digit(c)) return read_number(token);
    if (c == '\'' || c == '"') return read_string(token, c);
    read_symbol(token);
  }

  void read_name(Token& token) {
    const size_t start = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    token.kind = Token::Kind::kName;
    token.text = text_.substr(start, at_ - start);
  }

  void read_number(Token& token) {
    const size_t start = at_;
    bool real = false;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool sign = (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
      if (c == '.' || c == 'e' || c == 'E') real = true;
      if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !(real && sign)) break;
      ++at_;
    }
    const std::string_view digits = text_.substr(start, at_ - start);
    const char* end = digits.data() + digits.size();
    token.kind = real ? Token::Kind::kFloat : Token::Kind::kInt;
    const auto result = real ? std::from_chars(digits.data(), end, token.real)
                             : std::from_chars(digits.data(), end, token.integer);
    if (result.ec != std::errc() || result.ptr != end ||
        (at_ < text_.size() && is_letter(text_[at_]))) {
      throw ExprFault("S401", fmt::format("'{}' is not a number", digits));
    }
  }

  void read_string(Token& token, char quote) {
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) throw ExprFault("S401", "a string is not closed");
    token.kind = Token::Kind::kString;
    token.text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
  }

  void read_symbol(Token& token) {
    token.kind = Token::Kind::kSymbol;
    for (std::string_view symbol : kLongSymbols) {
      if (text_.substr(at_, 2) == symbol) {
        token.text = symbol;
        at_ += 2;
        return;
      }
    }
    if (kSymbols.find(text_[at_]) == std::string_view::npos) {
      throw ExprFault("S401",
                      fmt::format("character {} at {} is not part of the language",
                                  static_cast<int>(static_cast<unsigned char>(text_[at_])), at_));
    }
    token.text = text_[at_++];
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex_expr(std::string_view text) {
  if (text.size() > kMaxExprBytes) {
    throw ExprFault("S409", fmt::format("longer than {} characters", kMaxExprBytes));
  }
  return Lexer(text).run();
}

}  // namespace tileops::spec
