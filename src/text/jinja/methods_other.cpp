/// Methods of dict, list and loop, and the global functions.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace galvani::text::jinja {
namespace {

const NativeSpec* find_named(std::span<const NativeSpec> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& m) { return m.name == name; });
  return found != table.end() ? &*found : nullptr;
}

Result<Value> dict_get(Interpreter&, const Value& self, Args& args) {
  const Value& key = args.at(0);
  if (!hashable(key)) return bug("a {} cannot be a dict key", key.type_name());
  if (const Value* found = self.dict_node()->find(key)) return *found;
  return args.get(1) != nullptr ? args.at(1) : Value::none();
}

Result<Value> dict_items(Interpreter&, const Value& self, Args&) {
  List out;
  for (const auto& [key, value] : self.dict_node()->entries()) {
    out.push_back(Value::list({key, value}, ListFlavor::kTuple));
  }
  return Value::list(std::move(out), ListFlavor::kItems);
}

Result<Value> dict_keys(Interpreter&, const Value& self, Args&) {
  List out;
  for (const auto& [key, value] : self.dict_node()->entries()) out.push_back(key);
  return Value::list(std::move(out), ListFlavor::kKeys);
}

Result<Value> dict_values(Interpreter&, const Value& self, Args&) {
  List out;
  for (const auto& [key, value] : self.dict_node()->entries()) out.push_back(value);
  return Value::list(std::move(out), ListFlavor::kValues);
}

Result<Value> copy(Interpreter&, const Value& self, Args&) {
  if (self.is_dict()) return self;
  return Value::list(self.items(), self.list_node()->flavor);
}

constexpr NativeSpec kDictMethods[] = {
    {"copy", copy, ""},      {"get", dict_get, "key,default", 1}, {"items", dict_items, ""},
    {"keys", dict_keys, ""}, {"values", dict_values, ""},
};

Result<Value> list_index(Interpreter& in, const Value& self, Args& args) {
  const auto size = static_cast<int64_t>(self.items().size());
  GALVANI_TRY(int64_t start, integer_argument(args, 1, 0, "start"));
  GALVANI_TRY(int64_t stop, integer_argument(args, 2, size, "stop"));
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + size, 0);
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    if (equal(self.items()[static_cast<size_t>(i)], args.at(0), &in.budget())) return Value::integer(i);
  }
  return bug("index: the value is not in the list");
}

Result<Value> list_count(Interpreter& in, const Value& self, Args& args) {
  int64_t count = 0;
  for (const Value& item : self.items()) count += equal(item, args.at(0), &in.budget()) ? 1 : 0;
  return Value::integer(count);
}

constexpr NativeSpec kListMethods[] = {
    {"copy", copy, ""},
    {"count", list_count, "value", 1},
    {"index", list_index, "value,start,stop", 1},
};

Result<Value> loop_cycle(Interpreter&, const Value& self, Args& args) {
  if (args.positional.empty()) return bug("loop.cycle needs items");
  const auto index = static_cast<uint64_t>(std::max<int64_t>(self.loop_node()->index0, 0));
  return args.positional[index % args.positional.size()];
}

Result<Value> loop_changed(Interpreter& in, const Value& self, Args& args) {
  LoopNode& loop = *self.loop_node();
  if (loop.ended) return bug("loop.changed was called after its loop ended");
  bool same = loop.has_changed && loop.changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) {
    same = equal(loop.changed[i], args.positional[i], &in.budget());
  }
  loop.has_changed = true;
  if (!same) loop.changed = args.positional;
  return Value::boolean(!same);
}

constexpr NativeSpec kLoopMethods[] = {
    {"changed", loop_changed, "*"},
    {"cycle", loop_cycle, "*"},
};

Result<Value> raise_exception(Interpreter& in, const Value&, Args& args) {
  return fail(ErrorCode::kInvalidArgument, "{}", to_str(args.at(0), in.budget()));
}

Result<Value> strftime_now(Interpreter& in, const Value&, Args& args) {
  GALVANI_TRY(const std::string format, string_argument(args, 0, "strftime_now's format"));
  GALVANI_TRY_VOID(in.check_size(format.size() * 20, "the time"));
  return Value::string(format_time(in.now(), format));
}

Result<Value> range(Interpreter& in, const Value&, Args& args) {
  GALVANI_TRY(const int64_t first, integer_argument(args, 0, 0, "range's argument"));
  GALVANI_TRY(const int64_t second, integer_argument(args, 1, 0, "range's stop"));
  GALVANI_TRY(const int64_t step, integer_argument(args, 2, 1, "range's step"));
  const int64_t start = args.get(1) != nullptr ? first : 0, stop = args.get(1) != nullptr ? second : first;
  if (step == 0) return bug("range's step must not be zero");
  uint64_t count = 0;  // unsigned: the distance of two int64 fits
  if (step > 0 && start < stop) {
    count = (static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) - 1) / static_cast<uint64_t>(step) + 1;
  } else if (step < 0 && start > stop) {
    const uint64_t down = uint64_t{0} - static_cast<uint64_t>(step);
    count = (static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) - 1) / down + 1;
  }
  if (count > static_cast<uint64_t>(in.budget().limits().max_range)) {
    return fail(ErrorCode::kOutOfRange, "range of {} numbers; at most {} are allowed", count,
                in.budget().limits().max_range);
  }
  List items;
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(
        Value::integer(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  Value out = Value::list(std::move(items), ListFlavor::kRange);
  out.list_node()->start = start;
  out.list_node()->stop = stop;
  out.list_node()->step = step;
  return out;
}

/// dict(mapping or pairs, **named) into `out`.
Status fill_dict(const Args& args, DictNode& out) {
  if (args.positional.size() > 1) return bug("dict takes at most one positional argument");
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict_node()->entries()) out.set(key, value);
    } else {
      GALVANI_TRY(const List pairs, iterate(source));
      for (const Value& pair : pairs) {
        GALVANI_TRY(List both, iterate(pair));
        if (both.size() != 2) return bug("dict needs pairs; found an item of length {}", both.size());
        if (!hashable(both[0])) return bug("a {} cannot be a dict key", both[0].type_name());
        out.set(std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : args.named) out.set(Value::string(name), value);
  return {};
}

Result<Value> dict(Interpreter&, const Value&, Args& args) {
  auto out = std::make_shared<DictNode>();
  GALVANI_TRY_VOID(fill_dict(args, *out));
  return Value::dict(std::move(out));
}

Result<Value> make_namespace(Interpreter& in, const Value&, Args& args) {
  auto out = in.new_namespace();
  GALVANI_TRY_VOID(fill_dict(args, out->attributes));
  return Value::name_space(std::move(out));
}

Result<Value> joiner_call(Interpreter&, const Value& self, Args&);
constexpr NativeSpec kJoinerCall = {"joiner", joiner_call, ""};
Result<Value> cycler_next(Interpreter&, const Value& self, Args&);

/// joiner(sep): a function that answers "" the first time and sep afterwards. Its state is a namespace.
Result<Value> joiner(Interpreter& in, const Value&, Args& args) {
  auto state = in.new_namespace();
  state->attributes.set(Value::string("sep"), args.get(0) != nullptr ? args.at(0) : Value::string(", "));
  state->attributes.set(Value::string("used"), Value::boolean(false));
  auto node = std::make_shared<FunctionNode>();
  node->spec = &kJoinerCall;
  node->self = Value::name_space(std::move(state));
  return Value::function(std::move(node));
}

Result<Value> joiner_call(Interpreter&, const Value& self, Args&) {
  DictNode& state = self.namespace_node()->attributes;
  if (!state.find("used")->truthy()) {
    state.set(Value::string("used"), Value::boolean(true));
    return Value::string("");
  }
  return *state.find("sep");
}

constexpr NativeSpec kCyclerNext = {"next", cycler_next, ""};
Result<Value> cycler_reset(Interpreter&, const Value& self, Args&);
constexpr NativeSpec kCyclerReset = {"reset", cycler_reset, ""};

/// cycler(items…): a namespace with next(), reset() and current.
Result<Value> cycler(Interpreter& in, const Value&, Args& args) {
  if (args.positional.empty()) return bug("cycler needs at least one item");
  auto state = in.new_namespace();
  const Value self = Value::name_space(state);
  state->attributes.set(Value::string("items"), Value::list(args.positional, ListFlavor::kTuple));
  state->attributes.set(Value::string("pos"), Value::integer(0));
  state->attributes.set(Value::string("current"), args.positional[0]);
  for (const NativeSpec* spec : {&kCyclerNext, &kCyclerReset}) {
    auto node = std::make_shared<FunctionNode>();
    node->spec = spec;
    node->self = self;
    state->attributes.set(Value::string(std::string(spec->name)), Value::function(std::move(node)));
  }
  return self;
}

/// Moves a cycler to position `pos`; an error when a template overwrote its state.
Status move_cycler(DictNode& state, int64_t pos) {
  const Value* items = state.find("items");
  if (items == nullptr || !items->is_list() || items->items().empty())
    return bug("the cycler's items were overwritten");
  const auto at = static_cast<size_t>(pos) % items->items().size();
  const Value current = items->items()[at];
  state.set(Value::string("pos"), Value::integer(static_cast<int64_t>(at)));
  state.set(Value::string("current"), current);
  return {};
}

Result<Value> cycler_next(Interpreter&, const Value& self, Args&) {
  DictNode& state = self.namespace_node()->attributes;
  const Value current = *state.find("current"), pos = *state.find("pos");
  if (!pos.is_int()) return bug("the cycler's position was overwritten");
  GALVANI_TRY_VOID(move_cycler(state, (pos.as_int() & 0xffffffff) + 1));
  return current;
}

Result<Value> cycler_reset(Interpreter&, const Value& self, Args&) {
  GALVANI_TRY_VOID(move_cycler(self.namespace_node()->attributes, 0));
  return Value::none();
}

constexpr NativeSpec kGlobals[] = {
    {"cycler", cycler, "*"},
    {"dict", dict, "*"},
    {"joiner", joiner, "sep"},
    {"namespace", make_namespace, "*"},
    {"raise_exception", raise_exception, "message", 1},
    {"range", range, "start,stop,step", 1},
    {"strftime_now", strftime_now, "format", 1},
};

}  // namespace

const NativeSpec* find_dict_method(std::string_view name) { return find_named(kDictMethods, name); }
const NativeSpec* find_list_method(std::string_view name) { return find_named(kListMethods, name); }
const NativeSpec* find_loop_method(std::string_view name) { return find_named(kLoopMethods, name); }
const NativeSpec* find_global(std::string_view name) { return find_named(kGlobals, name); }

}  // namespace galvani::text::jinja
