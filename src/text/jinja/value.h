#pragma once
/// Values of the template language: Python's, as far as a template can see them.
/// Strings, lists and dicts are shared and immutable (the sandbox of the Hugging Face environment forbids changing
/// them); only namespaces and loops have state.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "text/jinja/budget.h"

namespace galvani::text::jinja {

class Value;
using List = std::vector<Value>;
struct StringNode;
struct ListNode;
class DictNode;
struct FunctionNode;
struct MacroNode;
struct NamespaceNode;
struct LoopNode;

struct NoneType {
  bool operator==(const NoneType&) const = default;
};
/// Why a value is missing, as a whole sentence; may be null.
struct UndefinedType {
  std::shared_ptr<const std::string> reason;
  bool operator==(const UndefinedType&) const = default;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kFunction,
  kMacro,
  kNamespace,
  kLoop
};

/// The Python type behind a Kind::kList. A generator (map, select, …) can be walked once and has no length.
enum class ListFlavor : uint8_t { kList, kTuple, kGroup, kRange, kItems, kKeys, kValues, kGenerator };

class Value {
 public:
  Value() = default;  ///< undefined, without a reason
  static Value none() { return Value(Data(NoneType{})); }
  static Value undefined(std::string reason);
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(int64_t i) { return Value(Data(i)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value string(std::string text, bool markup = false);
  static Value list(List items, ListFlavor flavor = ListFlavor::kList);
  static Value dict(std::shared_ptr<const DictNode> node) { return Value(Data(std::move(node))); }
  static Value function(std::shared_ptr<FunctionNode> node) { return Value(Data(std::move(node))); }
  static Value macro(std::shared_ptr<MacroNode> node) { return Value(Data(std::move(node))); }
  static Value name_space(std::shared_ptr<NamespaceNode> node) { return Value(Data(std::move(node))); }
  static Value loop(std::shared_ptr<LoopNode> node) { return Value(Data(std::move(node))); }

  Kind kind() const noexcept { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const noexcept { return kind() == Kind::kUndefined; }
  bool is_none() const noexcept { return kind() == Kind::kNone; }
  bool is_bool() const noexcept { return kind() == Kind::kBool; }
  bool is_int() const noexcept { return kind() == Kind::kInt; }
  bool is_float() const noexcept { return kind() == Kind::kFloat; }
  bool is_number() const noexcept { return is_bool() || is_int() || is_float(); }
  /// int or bool, which is an int in Python.
  bool is_integral() const noexcept { return is_bool() || is_int(); }
  bool is_string() const noexcept { return kind() == Kind::kString; }
  bool is_list() const noexcept { return kind() == Kind::kList; }
  bool is_dict() const noexcept { return kind() == Kind::kDict; }

  bool as_bool() const { return std::get<bool>(data_); }
  /// Of an int or a bool.
  int64_t as_int() const { return is_bool() ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_); }
  /// Of any number.
  double as_real() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const StringNode& string_node() const { return *std::get<std::shared_ptr<const StringNode>>(data_); }
  const std::string& text() const;
  const std::shared_ptr<ListNode>& list_node() const { return std::get<std::shared_ptr<ListNode>>(data_); }
  const List& items() const;
  const std::shared_ptr<const DictNode>& dict_node() const { return std::get<std::shared_ptr<const DictNode>>(data_); }
  const std::shared_ptr<FunctionNode>& function_node() const { return std::get<std::shared_ptr<FunctionNode>>(data_); }
  const std::shared_ptr<MacroNode>& macro_node() const { return std::get<std::shared_ptr<MacroNode>>(data_); }
  const std::shared_ptr<NamespaceNode>& namespace_node() const {
    return std::get<std::shared_ptr<NamespaceNode>>(data_);
  }
  const std::shared_ptr<LoopNode>& loop_node() const { return std::get<std::shared_ptr<LoopNode>>(data_); }
  /// "'x' is undefined" and the like, for the error when an undefined value is used.
  std::string undefined_reason() const;

  bool truthy() const;
  /// Levels of lists, dicts and bound methods below this value.
  int depth() const;
  /// Python's type name: "str", "dict", "NoneType", …
  const char* type_name() const;
  /// Same object, as far as a template can tell (`is`).
  bool same(const Value& other) const;
  /// Bytes this value holds itself, to charge a budget when it was just made.
  size_t shallow_bytes() const;

 private:
  using Data = std::variant<UndefinedType, NoneType, bool, int64_t, double, std::shared_ptr<const StringNode>,
                            std::shared_ptr<ListNode>, std::shared_ptr<const DictNode>, std::shared_ptr<FunctionNode>,
                            std::shared_ptr<MacroNode>, std::shared_ptr<NamespaceNode>, std::shared_ptr<LoopNode>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

/// `text` is valid UTF-8. Indexing counts code points; `ascii` makes that a byte offset.
struct StringNode {
  std::string text;
  bool markup = false;  ///< came from `|safe` or `|escape`
  bool ascii = true;
  size_t length = 0;  ///< code points
};

struct ListNode {
  List items;
  ListFlavor flavor = ListFlavor::kList;
  int depth = 1;
  size_t consumed = 0;                    ///< generators only: items already taken
  int64_t start = 0, stop = 0, step = 1;  ///< ranges only, for printing
};

/// Insertion-ordered map from hashable values to values.
class DictNode {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  size_t size() const noexcept { return entries_.size(); }
  int depth() const noexcept { return depth_; }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Adds or replaces; `key` must be hashable.
  void set(Value key, Value value);
  void clear();

 private:
  size_t position(const Value& key, size_t hash) const;
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  ///< used beyond a few entries
  int depth_ = 1;
};

struct NamespaceNode {
  DictNode attributes;
};

/// Whether Python could hash the value (lists and dicts cannot be dict keys).
bool hashable(const Value& value);
/// Equal values have equal hashes: 1, 1.0 and True are the same key.
size_t hash_value(const Value& value);
/// Python's ==. With a budget, charges what it reads and answers false once that is exhausted.
bool equal(const Value& a, const Value& b, Budget* budget);

/// Items of one list that an operation may create: each costs about a hundred bytes.
inline constexpr size_t kMaxItems = 1'000'000;
[[nodiscard]] inline tl::unexpected<Error> too_many_items(size_t count) {
  return fail(ErrorCode::kOutOfRange, "a list of {} items; at most {} are allowed", count, kMaxItems);
}

/// An error in the template's own logic (a TypeError in Python), as opposed to raise_exception().
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> bug(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}

}  // namespace galvani::text::jinja
