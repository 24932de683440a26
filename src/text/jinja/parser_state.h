#pragma once
/// The parser's cursor and its recursive-descent rules; internal to parser*.cpp.
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace galvani::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens);
  Result<std::unique_ptr<Program>> run();

 private:
  static constexpr int kMaxNesting = 60;     ///< parentheses, unary operators, statements inside each other
  static constexpr int kMaxTreeDepth = 250;  ///< operators in a row also deepen the tree

  // Tokens.
  const Token& now() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  const Token& take() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool is_op(std::string_view op) const { return now().kind == TokenKind::kOperator && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == TokenKind::kName && now().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_op(std::string_view op);
  Result<std::string> expect_name(const char* what);
  std::string describe() const;
  tl::unexpected<Error> unexpected(const char* wanted) const;

  // Expressions (parser_expressions.cpp); the names follow Python's grammar.
  Result<ExprPtr> expression(bool with_conditional = true);
  Result<ExprPtr> conditional();
  Result<ExprPtr> logical_or();
  Result<ExprPtr> logical_and();
  Result<ExprPtr> logical_not();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concatenation();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary(bool with_filters = true);
  Result<ExprPtr> primary();
  Result<ExprPtr> postfix(ExprPtr node);
  Result<ExprPtr> filters_and_tests(ExprPtr node);
  Result<ExprPtr> filter_chain(ExprPtr node, bool first_name_now);
  Result<ExprPtr> test(ExprPtr node);
  Result<ExprPtr> subscript(ExprPtr node);
  Result<ExprPtr> call(ExprPtr node);
  Result<std::vector<Argument>> arguments();
  Result<ExprPtr> list_literal();
  Result<ExprPtr> dict_literal();
  /// a, b, c: a tuple when there is a comma (or nothing, if `parenthesised`).
  Result<ExprPtr> tuple(bool with_conditional, bool parenthesised, std::string_view end_name = {});
  bool tuple_ends(std::string_view end_name) const;
  Result<std::string> dotted_name(const char* what);

  // Statements (parser.cpp).
  Result<Body> statements(std::initializer_list<std::string_view> ends);
  Result<StmtPtr> statement(const std::string& name, int line);
  Result<StmtPtr> if_statement();
  Result<StmtPtr> for_statement();
  Result<StmtPtr> set_statement();
  Result<StmtPtr> macro_statement();
  Result<StmtPtr> call_statement();
  Result<StmtPtr> filter_statement();
  Result<StmtPtr> with_statement();
  Status signature(MacroDefinition& macro);
  Status macro_body(MacroDefinition& macro, std::string_view end);
  Result<ExprPtr> target(std::string_view end_name, bool attributes);
  Result<ExprPtr> single_target(bool attributes);
  Status block_end();
  Status end_tag(std::string_view name);

  // Nodes.
  ExprPtr make(ExprKind kind) const;
  StmtPtr make_stmt(StmtKind kind) const;
  /// Sets the node's depth from its children; an error when the tree gets too deep.
  Result<ExprPtr> finish(ExprPtr node) const;
  Result<ExprPtr> make_binary(ExprKind kind, Op op, ExprPtr left, ExprPtr right) const;
  uint32_t intern(const std::string& name);

  struct Nesting {
    explicit Nesting(int& depth) : depth_(++depth) {}
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& depth_;
  };
  Status check_nesting() const;

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  ///< enclosing for loops of the current function
  std::map<std::string, uint32_t> ids_;
  std::vector<std::string> names_;
  std::set<uint32_t> read_;  ///< names read in the macro being parsed
};

}  // namespace galvani::text::jinja
