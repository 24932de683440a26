#pragma once
/// What the verbs share. One file a verb; each registers itself as a CLI11 subcommand.
///
/// Exit codes everywhere: 0 yes, 1 no (the work asked for failed), 2 could not answer: bad arguments, or no GPU that
/// could be asked. A verb refuses a bad argument before it opens a model, where the words alone tell.
#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "galvani/engine.h"

namespace galvani::cli {

constexpr int kYes = 0, kNo = 1, kCannotAnswer = 2;

/// Set by the chosen verb's callback; main runs it after parsing.
using Action = std::function<int()>;

void add_generate(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

/// Whether `output`, which `option` names, can be written, for asking before long work (formats::check_writable), and
/// is not there as one of `inputs`, which the run reads, or in one that is a folder: it would be gone. Empty inputs are
/// passed over.
Status check_output(std::string_view option, const std::string& output, std::initializer_list<std::string_view> inputs);

/// Flags that say which model runs and how.
struct ModelFlags {
  std::string model, hf, tokenizer, synthetic, save;
  int bits = 4;
  std::string device = "auto", act = "auto", kv = "auto";
  int threads = 0, batch = 512;
  int64_t context = 0;
  int64_t expand_mib = 512;
  bool batch_invariant = false;
  std::vector<std::string> arms;

  /// --synthetic --bits --save, for verbs that load a model; before add_to.
  void add_synthetic(CLI::App& verb);
  /// -m, -hf, and with `run` also -c -t -b --device --act --kv --arm --batch-invariant.
  void add_to(CLI::App& verb, bool run);
  /// --tokenizer, for verbs that read or write text.
  void add_tokenizer_to(CLI::App& verb);
  /// The path -m names, the local snapshot of -hf, or the synthetic model's name; with --save it is written first, and
  /// the path is where.
  Result<std::string> path() const;
  /// Options for Engine::load, with a progress bar on standard error for loads above a second.
  Result<LoadOptions> load_options() const;

 private:
  CLI::Option* save_option_ = nullptr;  ///< of a verb that has --save
  mutable bool saved_ = false;
};

/// Prints "error: …" on standard error; gives the exit code that belongs to the error.
int report(const Error& error);

/// A whole file, or standard input for "-".
Result<std::string> read_text_file(const std::string& path);
/// Writes a whole file that appears complete or not at all (formats::AtomicFile).
Status write_text_file(const std::string& path, std::string_view text);
/// Writes and flushes to standard output. Error when nobody reads it any more or the disk is full.
Status print(std::string_view text);

}  // namespace galvani::cli
