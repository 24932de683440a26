#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/parser_state.h"

namespace galvani::text::jinja {
namespace {

struct OpName {
  std::string_view text;
  Op op;
};
constexpr OpName kComparisons[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                   {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
constexpr OpName kSums[] = {{"+", Op::kAdd}, {"-", Op::kSub}};
constexpr OpName kProducts[] = {{"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};

template <size_t N>
const OpName* find_op(const OpName (&table)[N], const Token& token) {
  if (token.kind != TokenKind::kOperator) return nullptr;
  for (const OpName& entry : table) {
    if (entry.text == token.text) return &entry;
  }
  return nullptr;
}

}  // namespace

Result<ExprPtr> Parser::expression(bool with_conditional) {
  const Nesting nesting(nesting_);
  GALVANI_TRY_VOID(check_nesting());
  return with_conditional ? conditional() : logical_or();
}

Result<ExprPtr> Parser::conditional() {
  GALVANI_TRY(ExprPtr node, logical_or());
  while (is_name("if")) {
    ExprPtr choice = make(ExprKind::kConditional);
    take();
    GALVANI_TRY(ExprPtr condition, logical_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      GALVANI_TRY(otherwise, expression());
    }
    choice->children.push_back(std::move(condition));
    choice->children.push_back(std::move(node));
    choice->children.push_back(std::move(otherwise));
    GALVANI_TRY(node, finish(std::move(choice)));
  }
  return node;
}

Result<ExprPtr> Parser::logical_or() {
  GALVANI_TRY(ExprPtr left, logical_and());
  while (skip_name("or")) {
    GALVANI_TRY(ExprPtr right, logical_and());
    GALVANI_TRY(left, make_binary(ExprKind::kOr, Op::kAdd, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::logical_and() {
  GALVANI_TRY(ExprPtr left, logical_not());
  while (skip_name("and")) {
    GALVANI_TRY(ExprPtr right, logical_not());
    GALVANI_TRY(left, make_binary(ExprKind::kAnd, Op::kAdd, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::logical_not() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(nesting_);
  GALVANI_TRY_VOID(check_nesting());
  ExprPtr node = make(ExprKind::kNot);
  take();
  GALVANI_TRY(ExprPtr operand, logical_not());
  node->children.push_back(std::move(operand));
  return finish(std::move(node));
}

Result<ExprPtr> Parser::comparison() {
  ExprPtr node = make(ExprKind::kCompare);
  GALVANI_TRY(ExprPtr first, sum());
  while (true) {
    const OpName* op = find_op(kComparisons, now());
    Op chosen = Op::kEq;
    if (op != nullptr) {
      chosen = op->op;
      take();
    } else if (is_name("in")) {
      chosen = Op::kIn;
      take();
    } else if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      chosen = Op::kNotIn;
      take();
      take();
    } else {
      break;
    }
    if (node->children.empty()) node->children.push_back(std::move(first));
    GALVANI_TRY(ExprPtr operand, sum());
    node->ops.push_back(chosen);
    node->children.push_back(std::move(operand));
  }
  return node->children.empty() ? Result<ExprPtr>(std::move(first)) : finish(std::move(node));
}

Result<ExprPtr> Parser::sum() {
  GALVANI_TRY(ExprPtr left, concatenation());
  while (const OpName* op = find_op(kSums, now())) {
    take();
    GALVANI_TRY(ExprPtr right, concatenation());
    GALVANI_TRY(left, make_binary(ExprKind::kBinary, op->op, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::concatenation() {
  ExprPtr node = make(ExprKind::kConcat);
  GALVANI_TRY(ExprPtr first, product());
  if (!is_op("~")) return first;
  node->children.push_back(std::move(first));
  while (skip_op("~")) {
    GALVANI_TRY(ExprPtr operand, product());
    node->children.push_back(std::move(operand));
  }
  return finish(std::move(node));
}

Result<ExprPtr> Parser::product() {
  GALVANI_TRY(ExprPtr left, power());
  while (const OpName* op = find_op(kProducts, now())) {
    take();
    GALVANI_TRY(ExprPtr right, power());
    GALVANI_TRY(left, make_binary(ExprKind::kBinary, op->op, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::power() {
  GALVANI_TRY(ExprPtr left, unary());
  while (skip_op("**")) {  // grouped from the left, as jinja2 does
    GALVANI_TRY(ExprPtr right, unary());
    GALVANI_TRY(left, make_binary(ExprKind::kBinary, Op::kPow, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::unary(bool with_filters) {
  ExprPtr node;
  if (is_op("-") || is_op("+")) {
    const Nesting nesting(nesting_);
    GALVANI_TRY_VOID(check_nesting());
    ExprPtr sign = make(is_op("-") ? ExprKind::kNegate : ExprKind::kPlus);
    take();
    GALVANI_TRY(ExprPtr operand, unary(false));
    sign->children.push_back(std::move(operand));
    GALVANI_TRY(node, finish(std::move(sign)));
  } else {
    GALVANI_TRY(node, primary());
  }
  GALVANI_TRY(node, postfix(std::move(node)));
  return with_filters ? filters_and_tests(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> Parser::primary() {
  ExprPtr node = make(ExprKind::kConst);
  switch (now().kind) {
    case TokenKind::kName: {
      const std::string name = take().text;
      if (name == "true" || name == "True")
        node->constant = Value::boolean(true);
      else if (name == "false" || name == "False")
        node->constant = Value::boolean(false);
      else if (name == "none" || name == "None")
        node->constant = Value::none();
      else {
        node->kind = ExprKind::kName;
        node->text = name;
        node->name_id = intern(name);
        read_.insert(node->name_id);
      }
      return node;
    }
    case TokenKind::kString: {
      std::string text;
      while (now().kind == TokenKind::kString) text += take().text;  // adjacent literals join
      node->constant = Value::string(std::move(text));
      return node;
    }
    case TokenKind::kInteger: node->constant = Value::integer(take().integer); return node;
    case TokenKind::kFloat: node->constant = Value::real(take().real); return node;
    case TokenKind::kOperator:
      if (skip_op("(")) {
        GALVANI_TRY(ExprPtr inner, tuple(true, true));
        GALVANI_TRY_VOID(expect_op(")"));
        return inner;
      }
      if (is_op("[")) return list_literal();
      if (is_op("{")) return dict_literal();
      break;
    default: break;
  }
  return unexpected("an expression");
}

Result<ExprPtr> Parser::list_literal() {
  ExprPtr node = make(ExprKind::kList);
  take();
  while (!is_op("]")) {
    if (!node->children.empty()) {
      GALVANI_TRY_VOID(expect_op(","));
      if (is_op("]")) break;
    }
    GALVANI_TRY(ExprPtr item, expression());
    node->children.push_back(std::move(item));
  }
  GALVANI_TRY_VOID(expect_op("]"));
  return finish(std::move(node));
}

Result<ExprPtr> Parser::dict_literal() {
  ExprPtr node = make(ExprKind::kDict);
  take();
  while (!is_op("}")) {
    if (!node->children.empty()) {
      GALVANI_TRY_VOID(expect_op(","));
      if (is_op("}")) break;
    }
    GALVANI_TRY(ExprPtr key, expression());
    GALVANI_TRY_VOID(expect_op(":"));
    GALVANI_TRY(ExprPtr value, expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  GALVANI_TRY_VOID(expect_op("}"));
  return finish(std::move(node));
}

bool Parser::tuple_ends(std::string_view end_name) const {
  return now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd || is_op(")") ||
         (!end_name.empty() && is_name(end_name));
}

Result<ExprPtr> Parser::tuple(bool with_conditional, bool parenthesised, std::string_view end_name) {
  ExprPtr node = make(ExprKind::kTuple);
  bool comma = false;
  while (!tuple_ends(end_name)) {
    GALVANI_TRY(ExprPtr item, expression(with_conditional));
    node->children.push_back(std::move(item));
    if (!is_op(",")) break;
    comma = true;
    take();
  }
  if (!comma) {
    if (!node->children.empty()) return std::move(node->children.front());
    if (!parenthesised) return unexpected("an expression");
  }
  return finish(std::move(node));
}

Result<ExprPtr> Parser::postfix(ExprPtr node) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      GALVANI_TRY(node, subscript(std::move(node)));
    } else if (is_op("(")) {
      GALVANI_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::filters_and_tests(ExprPtr node) {
  while (true) {
    if (is_op("|")) {
      GALVANI_TRY(node, filter_chain(std::move(node), false));
    } else if (is_name("is")) {
      GALVANI_TRY(node, test(std::move(node)));
    } else if (is_op("(")) {
      GALVANI_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::subscript(ExprPtr node) {
  if (skip_op(".")) {
    ExprPtr out = make(ExprKind::kAttribute);
    if (now().kind == TokenKind::kInteger) {
      out->kind = ExprKind::kItem;
      ExprPtr index = make(ExprKind::kConst);
      index->constant = Value::integer(take().integer);
      out->children.push_back(std::move(node));
      out->children.push_back(std::move(index));
      return finish(std::move(out));
    }
    GALVANI_TRY(out->text, expect_name("an attribute name"));
    out->constant = Value::string(out->text);
    out->children.push_back(std::move(node));
    return finish(std::move(out));
  }
  ExprPtr out = make(ExprKind::kItem);
  GALVANI_TRY_VOID(expect_op("["));
  out->children.push_back(std::move(node));
  ExprPtr parts[3];
  int colons = 0;
  for (int part = 0; part < 3; ++part) {
    if (!is_op(":") && !is_op("]")) {
      GALVANI_TRY(parts[part], part == 0 ? tuple(true, false) : expression());
    }
    if (part == 2 || !skip_op(":")) break;
    ++colons;
  }
  GALVANI_TRY_VOID(expect_op("]"));
  if (colons == 0 && parts[0] == nullptr) parts[0] = make(ExprKind::kTuple);  // a[] looks up the empty tuple
  if (colons != 0) out->kind = ExprKind::kSlice;
  for (int part = 0; part < (colons != 0 ? 3 : 1); ++part) out->children.push_back(std::move(parts[part]));
  return finish(std::move(out));
}

Result<std::vector<Argument>> Parser::arguments() {
  std::vector<Argument> out;
  GALVANI_TRY_VOID(expect_op("("));
  bool named = false;
  while (!is_op(")")) {
    if (!out.empty()) {
      GALVANI_TRY_VOID(expect_op(","));
      if (is_op(")")) break;
    }
    Argument argument;
    if (skip_op("*")) {
      argument.kind = Argument::Kind::kSpread;
    } else if (skip_op("**")) {
      argument.kind = Argument::Kind::kSpreadNamed;
      named = true;
    } else if (now().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      argument.kind = Argument::Kind::kNamed;
      argument.name = take().text;
      take();
      named = true;
    } else if (named) {
      return unexpected("a named argument (positional ones come first)");
    }
    GALVANI_TRY(argument.value, expression());
    out.push_back(std::move(argument));
  }
  GALVANI_TRY_VOID(expect_op(")"));
  return out;
}

Result<ExprPtr> Parser::call(ExprPtr node) {
  ExprPtr out = make(ExprKind::kCall);
  out->children.push_back(std::move(node));
  GALVANI_TRY(out->arguments, arguments());
  return finish(std::move(out));
}

Result<std::string> Parser::dotted_name(const char* what) {
  GALVANI_TRY(std::string name, expect_name(what));
  while (skip_op(".")) {
    GALVANI_TRY(std::string part, expect_name(what));
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> Parser::filter_chain(ExprPtr node, bool first_name_now) {
  while (first_name_now || skip_op("|")) {
    first_name_now = false;
    ExprPtr out = make(ExprKind::kFilter);
    GALVANI_TRY(out->text, dotted_name("a filter name"));
    out->native = find_filter(out->text);
    out->children.push_back(std::move(node));
    if (is_op("(")) {
      GALVANI_TRY(out->arguments, arguments());
    }
    GALVANI_TRY(node, finish(std::move(out)));
  }
  return node;
}

Result<ExprPtr> Parser::test(ExprPtr node) {
  ExprPtr out = make(ExprKind::kTest);
  take();
  const bool negated = skip_name("not");
  GALVANI_TRY(out->text, dotted_name("a test name"));
  out->native = find_test(out->text);
  out->children.push_back(std::move(node));
  const Token& next = now();
  const bool starts_argument = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                               next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat || is_op("[") ||
                               is_op("{");
  if (is_op("(")) {
    GALVANI_TRY(out->arguments, arguments());
  } else if (starts_argument && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) return bug("line {}: tests cannot be chained: write (a is b) and (a is c)", next.line);
    Argument argument;
    GALVANI_TRY(argument.value, primary());
    GALVANI_TRY(argument.value, postfix(std::move(argument.value)));
    out->arguments.push_back(std::move(argument));
  }
  GALVANI_TRY(ExprPtr result, finish(std::move(out)));
  if (!negated) return result;
  ExprPtr inverse = make(ExprKind::kNot);
  inverse->children.push_back(std::move(result));
  return finish(std::move(inverse));
}

}  // namespace galvani::text::jinja
