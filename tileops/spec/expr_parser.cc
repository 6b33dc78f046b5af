// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tileops/spec/expr.h"
#include "tileops/spec/expr_cursor.h"

namespace tileops::spec {
namespace {

int count_nodes(const ExprNode& node) {
  int count = 1;
  for (const ExprNode& kid : node.kids) count += count_nodes(kid);
  return count;
}

std::optional<ExprOp> comparison(std::string_view symbol) {
  if (symbol == "==") return ExprOp::kEq;
  if (symbol == "!=") return ExprOp::kNe;
  if (symbol == "<") return ExprOp::kLt;
  if (symbol == "<=") return ExprOp::kLe;
  if (symbol == ">") return ExprOp::kGt;
  if (symbol == ">=") return ExprOp::kGe;
  return std::nullopt;
}

std::optional<ExprOp> over_loop(std::string_view name) {
  if (name == "all") return ExprOp::kAll;
  if (name == "any") return ExprOp::kAny;
  if (name == "sum") return ExprOp::kSum;
  if (name == "max") return ExprOp::kMax;
  if (name == "min") return ExprOp::kMin;
  return std::nullopt;
}

/// Recursive descent, lowest precedence first: if, or, and, not, comparison, sum, product, sign,
/// postfix, atom.
class Parser : private TokenCursor {
 public:
  explicit Parser(std::string_view text) : TokenCursor(text) {}

  ExprNode run() {
    ExprNode node = conditional();
    if (peek().kind != Token::Kind::kEnd) fail("'{}' is out of place", peek().text);
    return node;
  }

 private:
  struct Depth {
    explicit Depth(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxExprDepth) {
        throw ExprFault("S409", fmt::format("nested deeper than {}", kMaxExprDepth));
      }
    }
    ~Depth() { --parser.depth_; }
    Parser& parser;
  };

  template <class... Args>
  [[noreturn]] static void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw ExprFault("S401", fmt::format(format, std::forward<Args>(args)...));
  }

  ExprNode make(ExprOp op, std::vector<ExprNode> kids = {}) {
    if (++nodes_ > kMaxExprNodes) {
      throw ExprFault("S409", fmt::format("more than {} nodes", kMaxExprNodes));
    }
    ExprNode node;
    node.op = op;
    node.position = peek().position;
    node.kids = std::move(kids);
    return node;
  }
  ExprNode binary(ExprOp op, ExprNode a, ExprNode b) {
    std::vector<ExprNode> kids;
    kids.push_back(std::move(a));
    kids.push_back(std::move(b));
    return make(op, std::move(kids));
  }
  ExprNode unary(ExprOp op, ExprNode a) {
    std::vector<ExprNode> kids;
    kids.push_back(std::move(a));
    return make(op, std::move(kids));
  }

  ExprNode conditional() {
    const Depth depth(*this);
    ExprNode then = disjunction();
    if (!accept("if")) return then;
    ExprNode condition = disjunction();
    expect("else");
    ExprNode otherwise = conditional();
    std::vector<ExprNode> kids;
    kids.push_back(std::move(then));
    kids.push_back(std::move(condition));
    kids.push_back(std::move(otherwise));
    return make(ExprOp::kIf, std::move(kids));
  }

  ExprNode disjunction() {
    ExprNode left = conjunction();
    while (accept("or")) left = binary(ExprOp::kOr, std::move(left), conjunction());
    return left;
  }

  ExprNode conjunction() {
    ExprNode left = negation();
    while (accept("and")) left = binary(ExprOp::kAnd, std::move(left), negation());
    return left;
  }

  ExprNode negation() {
    const Depth depth(*this);
    if (accept("not")) return unary(ExprOp::kNot, negation());
    return comparisons();
  }

  ExprNode comparisons() {
    ExprNode left = sum();
    std::optional<ExprNode> chain;
    while (true) {
      std::optional<ExprOp> op = comparison(peek().kind == Token::Kind::kSymbol ? peek().text : "");
      if (op) {
        ++at_;
      } else if (accept("in")) {
        op = ExprOp::kIn;
      } else if (is("not") && tokens_[at_ + 1].text == "in") {
        at_ += 2;
        op = ExprOp::kNotIn;
      } else {
        break;
      }
      ExprNode right = sum();
      nodes_ += count_nodes(right);
      ExprNode link = binary(*op, std::move(left), right);
      chain = chain ? binary(ExprOp::kAnd, std::move(*chain), std::move(link)) : std::move(link);
      left = std::move(right);
    }
    return chain ? std::move(*chain) : std::move(left);
  }

  ExprNode sum() {
    ExprNode left = product();
    while (true) {
      if (accept("+")) {
        left = binary(ExprOp::kAdd, std::move(left), product());
      } else if (accept("-")) {
        left = binary(ExprOp::kSub, std::move(left), product());
      } else {
        return left;
      }
    }
  }

  ExprNode product() {
    ExprNode left = sign();
    while (true) {
      ExprOp op;
      if (accept("*")) {
        op = ExprOp::kMul;
      } else if (accept("//")) {
        op = ExprOp::kFloorDiv;
      } else if (accept("/")) {
        op = ExprOp::kDiv;
      } else if (accept("%")) {
        op = ExprOp::kMod;
      } else {
        return left;
      }
      left = binary(op, std::move(left), sign());
    }
  }

  ExprNode sign() {
    const Depth depth(*this);
    if (accept("-")) return unary(ExprOp::kNeg, sign());
    return postfix();
  }

  ExprNode postfix() {
    ExprNode node = atom();
    while (true) {
      if (accept("[")) {
        std::vector<ExprNode> kids;
        kids.push_back(std::move(node));
        do {
          kids.push_back(conditional());
        } while (accept(","));
        expect("]");
        node = make(ExprOp::kSubscript, std::move(kids));
      } else if (accept(".")) {
        if (peek().kind != Token::Kind::kName) fail("a field name is missing after '.'");
        std::string field = tokens_[at_++].text;
        node = unary(ExprOp::kField, std::move(node));
        node.text = std::move(field);
      } else {
        return node;
      }
    }
  }

  ExprNode atom() {
    const Token token = peek();
    switch (token.kind) {
      case Token::Kind::kEnd:
        fail("a value is missing at the end");
      case Token::Kind::kInt:
        return literal(ExprOp::kInt, token);
      case Token::Kind::kFloat:
        return literal(ExprOp::kFloat, token);
      case Token::Kind::kString:
        return literal(ExprOp::kString, token);
      case Token::Kind::kName:
        return name(token);
      case Token::Kind::kSymbol:
        break;
    }
    if (!accept("(")) fail("a value is missing before '{}'", token.text);
    ExprNode first = conditional();
    if (accept(")")) return first;
    std::vector<ExprNode> kids;
    kids.push_back(std::move(first));
    while (accept(",")) {
      if (is(")")) break;
      kids.push_back(conditional());
    }
    expect(")");
    return make(ExprOp::kTuple, std::move(kids));
  }

  ExprNode literal(ExprOp op, const Token& token) {
    ExprNode node = make(op);
    node.integer = token.integer;
    node.real = token.real;
    node.text = token.text;
    ++at_;
    return node;
  }

  ExprNode name(const Token& token) {
    static constexpr std::string_view kReserved[] = {"if", "else", "and", "or", "in", "for", "not"};
    if (std::find(std::begin(kReserved), std::end(kReserved), token.text) != std::end(kReserved)) {
      fail("a value is missing before '{}'", token.text);
    }
    ExprNode node = literal(ExprOp::kName, token);
    if (token.text == "None") node.op = ExprOp::kNone;
    if (token.text == "true" || token.text == "false") {
      node.op = ExprOp::kBool;
      node.integer = token.text == "true";
    }
    if (node.op == ExprOp::kName && loop_slot(token.text) >= 0) {
      node.op = ExprOp::kLoop;
      node.slot = loop_slot(token.text);
    } else if (node.op == ExprOp::kName && accept("(")) {
      return call(std::move(node));
    }
    return node;
  }

  int32_t loop_slot(std::string_view variable) const {
    for (size_t i = loops_.size(); i-- > 0;) {
      if (loops_[i] == variable) return static_cast<int32_t>(i);
    }
    return -1;
  }

  ExprNode call(ExprNode callee) {
    if (callee.text == "present") {
      if (peek().kind != Token::Kind::kName) fail("present() takes a name");
      ExprNode node = unary(ExprOp::kPresent, conditional());
      expect(")");
      return node;
    }
    const auto loop = over_loop(callee.text);
    if (loop && has_loop()) return comprehension(*loop);
    if (loop && *loop != ExprOp::kMax && *loop != ExprOp::kMin) {
      fail("{}() takes a comprehension: {}(… for i in range(n))", callee.text, callee.text);
    }
    const PrimitiveInfo* info = find_primitive(callee.text);
    if (info == nullptr) {
      throw ExprFault("S402", fmt::format("there is no function '{}'", callee.text));
    }
    std::vector<ExprNode> kids;
    while (!is(")")) {
      kids.push_back(conditional());
      if (!accept(",")) break;
    }
    expect(")");
    const int count = static_cast<int>(kids.size());
    if (count < info->min_args || count > info->max_args) {
      fail("{}() takes {} arguments, not {}", info->name, info->min_args, count);
    }
    ExprNode node = make(ExprOp::kCall, std::move(kids));
    node.slot = static_cast<int32_t>(info->primitive);
    node.text = info->name;
    return node;
  }

  /// The loops come after the body in the text, and are read first: the body needs their names.
  ExprNode comprehension(ExprOp op) {
    const Depth depth(*this);
    const size_t body_at = at_;
    int open = 0;
    while (!(open == 0 && is("for"))) {
      if (is("(") || is("[")) ++open;
      if (is(")") || is("]")) --open;
      ++at_;
    }
    const size_t first_loop = loops_.size();
    std::vector<ExprNode> kids(1);
    while (accept("for")) loop_header(kids);
    const size_t end = at_;
    expect(")");
    at_ = body_at;
    kids[0] = conditional();
    if (!is("for")) fail("'{}' is out of place", peek().text);
    at_ = end + 1;
    loops_.resize(first_loop);
    ExprNode node = make(op, std::move(kids));
    node.slot = static_cast<int32_t>(first_loop);
    return node;
  }

  void loop_header(std::vector<ExprNode>& kids) {
    if (peek().kind != Token::Kind::kName) fail("a loop variable is missing after 'for'");
    std::string variable = tokens_[at_++].text;
    expect("in");
    expect("range");
    expect("(");
    ExprNode start = conditional();
    if (accept(",")) {
      kids.push_back(std::move(start));
      kids.push_back(conditional());
    } else {
      kids.push_back(make(ExprOp::kInt));
      kids.push_back(std::move(start));
    }
    expect(")");
    if (loops_.size() >= kMaxLoops) {
      throw ExprFault("S409", fmt::format("more than {} loops", kMaxLoops));
    }
    loops_.push_back(std::move(variable));
  }

  int depth_ = 0;
  int nodes_ = 0;
  std::vector<std::string> loops_;
};

void collect_names(const ExprNode& node, std::vector<std::string>& names) {
  const bool named = node.op == ExprOp::kName || node.op == ExprOp::kIndex ||
                     node.op == ExprOp::kParam || node.op == ExprOp::kTensor;
  if (named && std::find(names.begin(), names.end(), node.text) == names.end()) {
    names.push_back(node.text);
  }
  for (const ExprNode& kid : node.kids) collect_names(kid, names);
}

}  // namespace

Expr parse_expr(std::string_view text) { return {std::string(text), Parser(text).run()}; }

std::vector<std::string> names_of(const ExprNode& node) {
  std::vector<std::string> names;
  collect_names(node, names);
  return names;
}

}  // namespace tileops::spec
