// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/kinds.h"

#include <fmt/format.h>

#include <algorithm>

namespace tileops::spec {
namespace {

using Base = StaticKind::Base;

template <class... Args>
[[noreturn]] void fail(std::string_view code, fmt::format_string<Args...> format, Args&&... args) {
  throw ExprFault(code, fmt::format(format, std::forward<Args>(args)...));
}

class Checker {
 public:
  explicit Checker(const Scope& scope) : scope_(scope) {}

  StaticKind check(ExprNode& node, const Narrowing& known) {
    switch (node.op) {
      case ExprOp::kNone:
      case ExprOp::kBool:
      case ExprOp::kInt:
      case ExprOp::kLoop:
      case ExprOp::kFloat:
      case ExprOp::kString:
      case ExprOp::kDType:
        return literal(node.op);
      case ExprOp::kTuple:
        return tuple(node, known);
      case ExprOp::kName:
      case ExprOp::kIndex:
      case ExprOp::kParam:
      case ExprOp::kTensor:
        return name(node, known);
      case ExprOp::kNeg:
        return require_number(node.kids[0], known, "-");
      case ExprOp::kNot:
        return require_bool(node.kids[0], known);
      case ExprOp::kAdd:
      case ExprOp::kSub:
      case ExprOp::kMul:
      case ExprOp::kDiv:
      case ExprOp::kFloorDiv:
      case ExprOp::kMod:
        return arithmetic(node, known);
      case ExprOp::kEq:
      case ExprOp::kNe:
        return equality(node, known);
      case ExprOp::kLt:
      case ExprOp::kLe:
      case ExprOp::kGt:
      case ExprOp::kGe:
        require_number(node.kids[0], known, "an order");
        require_number(node.kids[1], known, "an order");
        return {Base::kBool};
      case ExprOp::kIn:
      case ExprOp::kNotIn:
        return membership(node, known);
      case ExprOp::kAnd:
      case ExprOp::kOr:
        return connective(node, known);
      case ExprOp::kIf:
        return conditional(node, known);
      case ExprOp::kSubscript:
        return subscript(node, known);
      case ExprOp::kField:
        return field(node, known);
      case ExprOp::kPresent:
        return presence(node, known);
      case ExprOp::kCall:
        return call(node, known);
      default:
        return comprehension(node, known);
    }
  }

 private:
  static StaticKind literal(ExprOp op) {
    switch (op) {
      case ExprOp::kNone:
        return {Base::kNone, true};
      case ExprOp::kBool:
        return {Base::kBool};
      case ExprOp::kFloat:
        return {Base::kFloat};
      case ExprOp::kString:
        return {Base::kString};
      case ExprOp::kDType:
        return {Base::kDType};
      default:
        return {Base::kInt};
    }
  }

  StaticKind name(ExprNode& node, const Narrowing& known) {
    const auto it = scope_.symbols.find(node.text);
    if (it == scope_.symbols.end()) {
      if (const auto dtype = parse_dtype(node.text); dtype && dtype_name(*dtype) == node.text) {
        node.op = ExprOp::kDType;
        node.dtype = *dtype;
        return {Base::kDType};
      }
      fail("S402", "nothing is named '{}'", node.text);
    }
    const Symbol& symbol = it->second;
    if (symbol.execution) {
      fail("S405", "'{}' is an execution argument: no expression may read it", node.text);
    }
    node.op = symbol.op;
    node.slot = symbol.slot;
    StaticKind kind = symbol.kind;
    if (known.present.contains(node.text)) kind.nullable = false;
    return kind;
  }

  StaticKind tuple(ExprNode& node, const Narrowing& known) {
    for (ExprNode& kid : node.kids) check(kid, known);
    return {Base::kTuple};
  }

  StaticKind require_number(ExprNode& node, const Narrowing& known, std::string_view what) {
    const StaticKind kind = check(node, known);
    if (!numeric(kind)) fail("S403", "{} needs a number, not {}", what, kind_text(kind));
    return {kind.base};
  }

  StaticKind require_int(ExprNode& node, const Narrowing& known, std::string_view what) {
    const StaticKind kind = check(node, known);
    if (kind.base != Base::kInt || kind.nullable) {
      fail("S403", "{} needs an integer, not {}", what, kind_text(kind));
    }
    return {Base::kInt};
  }

  StaticKind require_bool(ExprNode& node, const Narrowing& known) {
    const StaticKind kind = check(node, known);
    if (kind.base != Base::kBool || kind.nullable) {
      fail("S403", "a truth value is needed, not {}", kind_text(kind));
    }
    return {Base::kBool};
  }

  StaticKind arithmetic(ExprNode& node, const Narrowing& known) {
    if (node.op == ExprOp::kFloorDiv || node.op == ExprOp::kMod) {
      require_int(node.kids[0], known, "//");
      return require_int(node.kids[1], known, "//");
    }
    const StaticKind a = require_number(node.kids[0], known, "arithmetic");
    const StaticKind b = require_number(node.kids[1], known, "arithmetic");
    const bool ints = a.base == Base::kInt && b.base == Base::kInt && node.op != ExprOp::kDiv;
    return {ints ? Base::kInt : Base::kFloat};
  }

  StaticKind equality(ExprNode& node, const Narrowing& known) {
    const StaticKind a = check(node.kids[0], known);
    const StaticKind b = check(node.kids[1], known);
    require_comparable(node.kids[0], a, node.kids[1], b);
    return {Base::kBool};
  }

  StaticKind membership(ExprNode& node, const Narrowing& known) {
    const StaticKind item = check(node.kids[0], known);
    const StaticKind where = check(node.kids[1], known);
    if (node.kids[1].op == ExprOp::kTuple) {
      for (ExprNode& kid : node.kids[1].kids) {
        require_comparable(node.kids[0], item, kid, check(kid, known));
      }
    } else if (where.base != Base::kList && where.base != Base::kSeq) {
      fail("S403", "'in' needs a tuple, a list or a shape, not {}", kind_text(where));
    }
    return {Base::kBool};
  }

  StaticKind connective(ExprNode& node, const Narrowing& known) {
    require_bool(node.kids[0], known);
    Narrowing inner = known;
    narrow(node.kids[0], node.op == ExprOp::kAnd, scope_, inner);
    return require_bool(node.kids[1], inner);
  }

  StaticKind conditional(ExprNode& node, const Narrowing& known) {
    require_bool(node.kids[1], known);
    Narrowing then = known;
    Narrowing otherwise = known;
    narrow(node.kids[1], true, scope_, then);
    narrow(node.kids[1], false, scope_, otherwise);
    const StaticKind a = check(node.kids[0], then);
    const StaticKind b = check(node.kids[2], otherwise);
    if (a.base == b.base) return {a.base, a.nullable || b.nullable, a.type};
    if (numeric(a) && numeric(b)) return {Base::kFloat};
    if (a.base == Base::kNone) return {b.base, true, b.type};
    if (b.base == Base::kNone) return {a.base, true, a.type};
    fail("S403", "the branches of 'if' give {} and {}", kind_text(a), kind_text(b));
  }

  StaticKind subscript(ExprNode& node, const Narrowing& known) {
    const StaticKind base = check(node.kids[0], known);
    for (size_t i = 1; i < node.kids.size(); ++i) require_int(node.kids[i], known, "a subscript");
    if (base.base == Base::kTensor) {
      if (!scope_.contents) fail("S403", "contents of {} cannot be read here", node.kids[0].text);
      return {Base::kInt};
    }
    if (base.nullable || node.kids.size() != 2) {
      fail("S403", "a subscript does not fit {}", kind_text(base));
    }
    if (base.base == Base::kSeq) return {Base::kInt};
    if (base.base == Base::kList) return kind_of(*base.type->element);
    fail("S403", "a subscript does not fit {}", kind_text(base));
  }

  StaticKind field(ExprNode& node, const Narrowing& known) {
    const StaticKind base = check(node.kids[0], known);
    const std::string path = path_of(node.kids[0]);
    if (base.base != Base::kSum) fail("S403", "{} has no fields", kind_text(base));
    if (base.nullable && !known.present.contains(path)) {
      fail("S404", "{} may be None here: its field '{}' is out of reach", path, node.text);
    }
    const auto possible = known.constructors.find(path);
    const FieldDecl* found = nullptr;
    for (const Constructor& constructor : base.type->sum->constructors) {
      if (possible != known.constructors.end() && !possible->second.contains(constructor.name)) {
        continue;
      }
      const auto it = std::find_if(constructor.fields.begin(), constructor.fields.end(),
                                   [&](const FieldDecl& each) { return each.name == node.text; });
      if (it == constructor.fields.end()) {
        fail("S404", "{} may be {} here, which has no field '{}'", path, constructor.name,
             node.text);
      }
      found = &*it;
    }
    if (found == nullptr) fail("S404", "{} has no constructor left here", path);
    StaticKind kind = kind_of(found->type);
    if (known.present.contains(path_of(node))) kind.nullable = false;
    return kind;
  }

  StaticKind presence(ExprNode& node, const Narrowing& known) {
    const StaticKind kind = check(node.kids[0], known);
    if (!kind.nullable && !known.present.contains(path_of(node.kids[0]))) {
      fail("S403", "{} is always present", path_of(node.kids[0]));
    }
    return {Base::kBool};
  }

  StaticKind require_tensor(ExprNode& node, const Narrowing& known, std::string_view what) {
    const StaticKind kind = check(node, known);
    if (kind.base != Base::kTensor) fail("S403", "{}() needs a tensor", what);
    return kind;
  }

  StaticKind call(ExprNode& node, const Narrowing& known) {
    const auto primitive = static_cast<Primitive>(node.slot);
    if (find_primitive(node.text)->roofline_only && !scope_.roofline) {
      fail("S402", "{}() is for roofline formulas", node.text);
    }
    switch (primitive) {
      case Primitive::kAbs:
        return require_number(node.kids[0], known, node.text);
      case Primitive::kMin:
      case Primitive::kMax:
        return extreme(node, known);
      case Primitive::kCeilDiv:
      case Primitive::kAlignUp:
        require_int(node.kids[0], known, node.text);
        return require_int(node.kids[1], known, node.text);
      case Primitive::kSqrt:
        require_number(node.kids[0], known, node.text);
        return {Base::kFloat};
      case Primitive::kIsFinite:
        require_number(node.kids[0], known, node.text);
        return {Base::kBool};
      case Primitive::kLen:
      case Primitive::kProd:
        return sequence(node, known);
      case Primitive::kItemsize: {
        const StaticKind kind = check(node.kids[0], known);
        if (kind.base != Base::kDType || kind.nullable) fail("S403", "itemsize() needs a dtype");
        return {Base::kInt};
      }
      case Primitive::kRank:
      case Primitive::kNumel:
      case Primitive::kBytes:
        require_tensor(node.kids[0], known, node.text);
        return {Base::kInt};
      case Primitive::kSize:
        require_tensor(node.kids[0], known, node.text);
        return require_int(node.kids[1], known, node.text);
      default:
        return roofline_call(node, known);
    }
  }

  StaticKind extreme(ExprNode& node, const Narrowing& known) {
    bool ints = true;
    for (ExprNode& kid : node.kids) {
      ints = require_number(kid, known, node.text).base == Base::kInt && ints;
    }
    return {ints ? Base::kInt : Base::kFloat};
  }

  StaticKind sequence(ExprNode& node, const Narrowing& known) {
    const StaticKind kind = check(node.kids[0], known);
    if ((kind.base != Base::kSeq && kind.base != Base::kList) || kind.nullable) {
      fail("S403", "{}() needs a list or a shape", node.text);
    }
    return {Base::kInt};
  }

  StaticKind roofline_call(ExprNode& node, const Narrowing& known) {
    switch (static_cast<Primitive>(node.slot)) {
      case Primitive::kStaged:
        for (size_t i = 0; i < 2; ++i) {
          if (node.kids[i].op != ExprOp::kString) fail("S403", "staged() names are strings");
        }
        require_number(node.kids[2], known, node.text);
        return {Base::kFloat};
      case Primitive::kDistinct:
      case Primitive::kValidIds:
        require_tensor(node.kids[0], known, node.text);
        return require_int(node.kids[1], known, node.text);
      default: {
        require_tensor(node.kids[0], known, node.text);
        const StaticKind layout = check(node.kids[1], known);
        if (layout.base != Base::kSum || layout.type->sum->name != "MGroupedLayout") {
          fail("S403", "{}() needs an MGroupedLayout", node.text);
        }
        return require_int(node.kids[2], known, node.text);
      }
    }
  }

  StaticKind comprehension(ExprNode& node, const Narrowing& known) {
    for (size_t i = 1; i < node.kids.size(); ++i) require_int(node.kids[i], known, "range()");
    if (node.op == ExprOp::kAll || node.op == ExprOp::kAny) {
      return require_bool(node.kids[0], known);
    }
    return require_number(node.kids[0], known, "a comprehension");
  }

  const Scope& scope_;
};

}  // namespace

StaticKind check_kinds(ExprNode& node, const Scope& scope, const Narrowing& known) {
  return Checker(scope).check(node, known);
}

}  // namespace tileops::spec
