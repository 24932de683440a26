#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/parser_state.h"

namespace galvani::text::jinja {

Parser::Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
}

Result<std::unique_ptr<Program>> Parser::run() {
  auto program = std::make_unique<Program>();
  GALVANI_TRY(program->body, statements({}));
  program->names = std::move(names_);
  return program;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

std::string Parser::describe() const {
  switch (now().kind) {
    case TokenKind::kData: return "template text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "a string";
    case TokenKind::kEnd: return "the end of the template";
    default: return "'" + now().text + "'";
  }
}

tl::unexpected<Error> Parser::unexpected(const char* wanted) const {
  return bug("line {}: expected {}, found {}", now().line, wanted, describe());
}

Status Parser::expect_op(std::string_view op) {
  if (skip_op(op)) return {};
  return bug("line {}: expected '{}', found {}", now().line, op, describe());
}

Result<std::string> Parser::expect_name(const char* what) {
  if (now().kind != TokenKind::kName) return unexpected(what);
  return take().text;
}

Status Parser::check_nesting() const {
  if (nesting_ <= kMaxNesting) return {};
  return bug("line {}: more than {} levels of nesting", now().line, kMaxNesting);
}

ExprPtr Parser::make(ExprKind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = now().line;
  return node;
}

StmtPtr Parser::make_stmt(StmtKind kind) const {
  auto node = std::make_unique<Stmt>();
  node->kind = kind;
  node->line = now().line;
  return node;
}

Result<ExprPtr> Parser::finish(ExprPtr node) const {
  for (const ExprPtr& child : node->children) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  }
  for (const Argument& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  if (node->depth > kMaxTreeDepth) {
    // Taken apart here, level by level, by the destructor: the depth is bounded by the check itself.
    return bug("line {}: an expression of more than {} operators in a row", node->line, kMaxTreeDepth);
  }
  return node;
}

Result<ExprPtr> Parser::make_binary(ExprKind kind, Op op, ExprPtr left, ExprPtr right) const {
  ExprPtr node = make(kind);
  node->op = op;
  node->line = left->line;
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return finish(std::move(node));
}

uint32_t Parser::intern(const std::string& name) {
  const auto [it, added] = ids_.emplace(name, static_cast<uint32_t>(names_.size()));
  if (added) names_.push_back(name);
  return it->second;
}

Status Parser::block_end() {
  if (now().kind != TokenKind::kBlockEnd) return unexpected("'%}'");
  take();
  return {};
}

/// The tag that ended a body: its name is the current token.
Status Parser::end_tag(std::string_view name) {
  if (!skip_name(name)) return bug("line {}: expected {{% {} %}}, found {}", now().line, name, describe());
  return block_end();
}

/// Statements up to a tag named in `ends`, whose name is left as the current token; without `ends`, up to the end.
Result<Body> Parser::statements(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(nesting_);
  GALVANI_TRY_VOID(check_nesting());
  Body body;
  const int opened = now().line;
  while (now().kind != TokenKind::kEnd) {
    if (now().kind == TokenKind::kData) {
      StmtPtr data = make_stmt(StmtKind::kData);
      data->text = take().text;
      body.push_back(std::move(data));
      continue;
    }
    if (now().kind == TokenKind::kVariableBegin) {
      take();
      StmtPtr print = make_stmt(StmtKind::kPrint);
      GALVANI_TRY(ExprPtr value, tuple(true, false));
      print->exprs.push_back(std::move(value));
      if (now().kind != TokenKind::kVariableEnd) return unexpected("'}}'");
      take();
      body.push_back(std::move(print));
      continue;
    }
    if (now().kind != TokenKind::kBlockBegin) return unexpected("template text");
    take();
    if (now().kind != TokenKind::kName) return unexpected("the name of a statement");
    for (const std::string_view end : ends) {
      if (now().text == end) return body;
    }
    const int line = now().line;
    const std::string name = take().text;
    GALVANI_TRY(StmtPtr node, statement(name, line));
    node->line = line;
    body.push_back(std::move(node));
  }
  if (ends.size() == 0) return body;
  return bug("line {}: the block that starts here has no {{% {} %}}", opened, *(ends.end() - 1));
}

Result<StmtPtr> Parser::statement(const std::string& name, int line) {
  if (name == "if") return if_statement();
  if (name == "for") return for_statement();
  if (name == "set") return set_statement();
  if (name == "macro") return macro_statement();
  if (name == "call") return call_statement();
  if (name == "filter") return filter_statement();
  if (name == "with") return with_statement();
  if (name == "break" || name == "continue") {
    if (loops_ == 0) return bug("line {}: {{% {} %}} outside a loop", line, name);
    GALVANI_TRY_VOID(block_end());
    return make_stmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue);
  }
  if (name == "generation") {
    GALVANI_TRY_VOID(block_end());
    StmtPtr node = make_stmt(StmtKind::kScope);
    const int loops = std::exchange(loops_, 0);
    GALVANI_TRY(Body body, statements({"endgeneration"}));
    loops_ = loops;
    GALVANI_TRY_VOID(end_tag("endgeneration"));
    node->bodies.push_back(std::move(body));
    return node;
  }
  if (name == "print") {
    StmtPtr node = make_stmt(StmtKind::kPrint);
    GALVANI_TRY(ExprPtr value, tuple(true, false));
    node->exprs.push_back(std::move(value));
    GALVANI_TRY_VOID(block_end());
    return node;
  }
  for (const std::string_view other : {"include", "import", "from", "extends", "block", "autoescape", "trans", "do"}) {
    if (name == other) {
      return fail(ErrorCode::kUnsupported, "line {}: {{% {} %}} is not available in chat templates", line, name);
    }
  }
  return bug("line {}: unknown statement {{% {} %}}", line, name);
}

Result<StmtPtr> Parser::if_statement() {
  StmtPtr node = make_stmt(StmtKind::kIf);
  while (true) {
    GALVANI_TRY(ExprPtr condition, tuple(false, false));
    GALVANI_TRY_VOID(block_end());
    GALVANI_TRY(Body body, statements({"elif", "else", "endif"}));
    node->exprs.push_back(std::move(condition));
    node->bodies.push_back(std::move(body));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      GALVANI_TRY_VOID(block_end());
      GALVANI_TRY(Body otherwise, statements({"endif"}));
      node->bodies.push_back(std::move(otherwise));
    }
    GALVANI_TRY_VOID(end_tag("endif"));
    return node;
  }
}

Result<StmtPtr> Parser::for_statement() {
  StmtPtr node = make_stmt(StmtKind::kFor);
  GALVANI_TRY(ExprPtr variable, target("in", false));
  if (variable->kind == ExprKind::kName && variable->name_id == kNameLoop) {
    return bug("line {}: a loop cannot use 'loop' as its variable", variable->line);
  }
  if (!skip_name("in")) return unexpected("'in'");
  GALVANI_TRY(ExprPtr iterable, tuple(false, false, "recursive"));
  ExprPtr condition;
  if (skip_name("if")) {
    GALVANI_TRY(condition, expression());
  }
  node->recursive = skip_name("recursive");
  GALVANI_TRY_VOID(block_end());
  ++loops_;
  GALVANI_TRY(Body body, statements({"else", "endfor"}));
  --loops_;
  Body otherwise;
  if (skip_name("else")) {
    GALVANI_TRY_VOID(block_end());
    GALVANI_TRY(otherwise, statements({"endfor"}));
  }
  GALVANI_TRY_VOID(end_tag("endfor"));
  node->exprs.push_back(std::move(variable));
  node->exprs.push_back(std::move(iterable));
  node->exprs.push_back(std::move(condition));
  node->bodies.push_back(std::move(body));
  node->bodies.push_back(std::move(otherwise));
  return node;
}

Result<ExprPtr> Parser::single_target(bool attributes) {
  const Nesting nesting(nesting_);
  GALVANI_TRY_VOID(check_nesting());
  if (skip_op("(")) {
    GALVANI_TRY(ExprPtr inner, target(")", attributes));
    GALVANI_TRY_VOID(expect_op(")"));
    return inner;
  }
  ExprPtr node = make(ExprKind::kName);
  GALVANI_TRY(node->text, expect_name("a variable name"));
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (node->text == word) return bug("line {}: cannot assign to {}", node->line, word);
  }
  node->name_id = intern(node->text);
  if (attributes && skip_op(".")) {
    node->kind = ExprKind::kTarget;
    GALVANI_TRY(node->text, expect_name("an attribute name"));
  }
  return node;
}

Result<ExprPtr> Parser::target(std::string_view end_name, bool attributes) {
  ExprPtr many = make(ExprKind::kTuple);
  GALVANI_TRY(ExprPtr first, single_target(attributes));
  if (!is_op(",")) return first;
  many->children.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_name(end_name) || is_op(end_name) || is_op("=")) break;
    GALVANI_TRY(ExprPtr next, single_target(attributes));
    many->children.push_back(std::move(next));
  }
  return finish(std::move(many));
}

Result<StmtPtr> Parser::set_statement() {
  StmtPtr node = make_stmt(StmtKind::kSet);
  GALVANI_TRY(ExprPtr variable, target("=", true));
  node->exprs.push_back(std::move(variable));
  if (skip_op("=")) {
    GALVANI_TRY(ExprPtr value, tuple(true, false));
    node->exprs.push_back(std::move(value));
    GALVANI_TRY_VOID(block_end());
    return node;
  }
  node->kind = StmtKind::kSetBlock;
  GALVANI_TRY(ExprPtr filter, filter_chain(nullptr, false));
  GALVANI_TRY_VOID(block_end());
  GALVANI_TRY(Body body, statements({"endset"}));
  GALVANI_TRY_VOID(end_tag("endset"));
  node->exprs.push_back(std::move(filter));
  node->bodies.push_back(std::move(body));
  return node;
}

Status Parser::signature(MacroDefinition& macro) {
  GALVANI_TRY_VOID(expect_op("("));
  while (!is_op(")")) {
    if (!macro.parameters.empty()) GALVANI_TRY_VOID(expect_op(","));
    GALVANI_TRY(ExprPtr parameter, single_target(false));
    if (parameter->kind != ExprKind::kName) return bug("line {}: a parameter must be a name", parameter->line);
    if (std::find(macro.parameter_ids.begin(), macro.parameter_ids.end(), parameter->name_id) !=
        macro.parameter_ids.end()) {
      return bug("line {}: the parameter {} appears twice", parameter->line, parameter->text);
    }
    macro.parameters.push_back(parameter->text);
    macro.parameter_ids.push_back(parameter->name_id);
    if (skip_op("=")) {
      GALVANI_TRY(ExprPtr value, expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return bug("line {}: a parameter without a default follows one with a default", now().line);
    }
  }
  return expect_op(")");
}

/// The body up to `end`; notes which of the special names it reads, since those change what a call accepts.
Status Parser::macro_body(MacroDefinition& macro, std::string_view end) {
  GALVANI_TRY_VOID(block_end());
  std::set<uint32_t> outer = std::exchange(read_, {});
  const int loops = std::exchange(loops_, 0);
  GALVANI_TRY(macro.body, statements({end}));
  GALVANI_TRY_VOID(end_tag(end));
  loops_ = loops;
  const auto reads = [&](uint32_t id) {
    const auto& ids = macro.parameter_ids;
    return read_.count(id) != 0 && std::find(ids.begin(), ids.end(), id) == ids.end();
  };
  macro.uses_caller = reads(kNameCaller);
  macro.uses_varargs = reads(kNameVarargs);
  macro.uses_kwargs = reads(kNameKwargs);
  outer.insert(read_.begin(), read_.end());
  read_ = std::move(outer);
  return {};
}

Result<StmtPtr> Parser::macro_statement() {
  StmtPtr node = make_stmt(StmtKind::kMacro);
  node->macro = std::make_unique<MacroDefinition>();
  GALVANI_TRY(ExprPtr name, single_target(false));
  if (name->kind != ExprKind::kName) return bug("line {}: a macro needs a name", name->line);
  node->macro->name = name->text;
  node->macro->name_id = name->name_id;
  GALVANI_TRY_VOID(signature(*node->macro));
  GALVANI_TRY_VOID(macro_body(*node->macro, "endmacro"));
  return node;
}

Result<StmtPtr> Parser::call_statement() {
  StmtPtr node = make_stmt(StmtKind::kCall);
  node->macro = std::make_unique<MacroDefinition>();
  node->macro->name = "caller";
  if (is_op("(")) GALVANI_TRY_VOID(signature(*node->macro));
  GALVANI_TRY(ExprPtr callee, expression());
  if (callee->kind != ExprKind::kCall) return bug("line {}: {{% call %}} needs a call, e.g. m()", callee->line);
  node->exprs.push_back(std::move(callee));
  GALVANI_TRY_VOID(macro_body(*node->macro, "endcall"));
  return node;
}

Result<StmtPtr> Parser::filter_statement() {
  StmtPtr node = make_stmt(StmtKind::kFilter);
  GALVANI_TRY(ExprPtr filter, filter_chain(nullptr, true));
  GALVANI_TRY_VOID(block_end());
  GALVANI_TRY(Body body, statements({"endfilter"}));
  GALVANI_TRY_VOID(end_tag("endfilter"));
  node->exprs.push_back(std::move(filter));
  node->bodies.push_back(std::move(body));
  return node;
}

Result<StmtPtr> Parser::with_statement() {
  StmtPtr node = make_stmt(StmtKind::kWith);
  while (now().kind != TokenKind::kBlockEnd) {
    if (!node->exprs.empty()) GALVANI_TRY_VOID(expect_op(","));
    GALVANI_TRY(ExprPtr variable, single_target(false));
    GALVANI_TRY_VOID(expect_op("="));
    GALVANI_TRY(ExprPtr value, expression());
    node->exprs.push_back(std::move(variable));
    node->exprs.push_back(std::move(value));
  }
  GALVANI_TRY_VOID(block_end());
  GALVANI_TRY(Body body, statements({"endwith"}));
  GALVANI_TRY_VOID(end_tag("endwith"));
  node->bodies.push_back(std::move(body));
  return node;
}

Result<std::unique_ptr<Program>> parse_template(std::string_view source) {
  GALVANI_TRY(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace galvani::text::jinja
