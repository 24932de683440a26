#pragma once
/// The syntax tree. One fat node type for expressions and one for statements: templates are small.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace galvani::text::jinja {

struct NativeSpec;

enum class ExprKind : uint8_t {
  kConst,        ///< constant
  kName,         ///< name_id
  kList,         ///< children
  kTuple,        ///< children
  kDict,         ///< children: key, value, key, value, …
  kNegate,       ///< children[0]
  kPlus,         ///< children[0]
  kNot,          ///< children[0]
  kBinary,       ///< op; children[0], children[1]
  kAnd,          ///< children[0], children[1]
  kOr,           ///< children[0], children[1]
  kConcat,       ///< children joined as text
  kCompare,      ///< children[0] ops[0] children[1] ops[1] children[2] …
  kConditional,  ///< children: condition, then, else (else may be null)
  kAttribute,    ///< children[0].text
  kItem,         ///< children[0][children[1]]
  kSlice,        ///< children[0][children[1] : children[2] : children[3]], null where left out
  kCall,         ///< children[0](arguments)
  kFilter,       ///< children[0] | text(arguments); children[0] null in a filter block
  kTest,         ///< children[0] is text(arguments)
  kTarget,       ///< assignment only: name_id . text, an attribute of a namespace
};

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  enum class Kind : uint8_t { kPositional, kNamed, kSpread, kSpreadNamed };
  Kind kind = Kind::kPositional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Op op = Op::kAdd;
  int line = 1;
  int depth = 1;  ///< height of the tree below, bounded by the parser
  uint32_t name_id = 0;
  std::string text;
  Value constant;                      ///< of kConst; of kAttribute the name as a value
  const NativeSpec* native = nullptr;  ///< of kFilter and kTest; null when there is none of that name
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<Argument> arguments;
};

enum class StmtKind : uint8_t {
  kData,      ///< text
  kPrint,     ///< exprs[0]
  kIf,        ///< exprs[i] → bodies[i]; a last body without expression is the else
  kFor,       ///< exprs: target, iterable, filter (may be null); bodies: loop, else
  kSet,       ///< exprs: target, value
  kSetBlock,  ///< exprs: target, filter (may be null); bodies[0]
  kMacro,     ///< macro
  kCall,      ///< exprs[0] is a kCall; macro is the caller
  kFilter,    ///< exprs[0] is a kFilter chain; bodies[0]
  kWith,      ///< exprs: target, value, target, value, …; bodies[0]
  kScope,     ///< bodies[0] in a scope of its own (generation)
  kBreak,
  kContinue,
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct MacroDefinition {
  std::string name;
  uint32_t name_id = 0;
  std::vector<std::string> parameters;
  std::vector<uint32_t> parameter_ids;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 1;
  bool recursive = false;  ///< of kFor
  std::string text;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  std::unique_ptr<MacroDefinition> macro;
};

/// Names are numbers at run time. The first few are fixed.
enum : uint32_t { kNameLoop, kNameCaller, kNameVarargs, kNameKwargs, kFixedNames };

struct Program {
  std::vector<std::string> names;  ///< by id
  Body body;
};

}  // namespace galvani::text::jinja
