#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include "cli/cli.h"
#include "cli/environment.h"
#include "core/error.h"
#include "core/log.h"
#include "galvani/version.h"

#include <fcntl.h>
#include <unistd.h>

namespace {

// Reading a mapped file that was cut short meanwhile raises SIGBUS; say so instead of dying without a word.
extern "C" void on_bus_error(int) {
  constexpr char kMessage[] =
      "\nerror: a model file became shorter while it was being read; do not change files while they are loaded\n";
  const ssize_t ignored = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  (void)ignored;
  _exit(galvani::cli::kNo);
}

// CLI11 takes no single-dash word; llama.cpp's -hf is spelled --hf for it.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> result;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "-hf") word = "--hf";
    if (word.rfind("-hf=", 0) == 0) word.insert(0, "-");
    result.push_back(std::move(word));
  }
  std::reverse(result.begin(), result.end());  // the order CLI11's vector overload wants
  return result;
}

// A file opened later must not get the number of a standard stream that the caller closed: text would go into it. The
// stand-ins are opened the wrong way round, so that using one is an error and not a silent loss.
void occupy_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(2);
  }
}

// What CLI11 would call a missing subcommand.
bool unknown_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-' || !app.get_subcommands().empty()) return false;
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  std::fprintf(stderr, "there is no verb \"%s\"; the verbs are %s\nRun with --help for more information.\n", argv[1],
               verbs.c_str());
  return true;
}

int run(int argc, char** argv) {
  using namespace galvani::cli;
  CLI::App app("Galvani runs quantized language models.", "galvani");
  constexpr const char* kVersion = "galvani " GALVANI_VERSION_STRING;
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose, "print what is being done");
  Action action;
  add_generate(app, action);
  add_chat(app, action);
  add_inspect(app, action);
  add_tokenize(app, action);
  add_eval(app, action);
  add_quantize(app, action);
  add_bench(app, action);
  add_doctor(app, action);
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verb->add_flag("-v,--verbose", verbose, "print what is being done");
    verb->set_version_flag("--version", kVersion);
  }
  try {
    app.parse(arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (unknown_verb(app, argc, argv)) return kCannotAnswer;
    return app.exit(error) == 0 ? kYes : kCannotAnswer;
  }
  const auto switches = debug_switches();
  if (!switches) return report(switches.error());
  galvani::init_logging(verbose || switches->trace_plan);
  const int code = action();
  if (code != kYes) return code;
  if (const galvani::Status done = print(""); !done) return report(done.error());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  std::signal(SIGBUS, on_bus_error);
  std::signal(SIGXFSZ, SIG_IGN);  // likewise a file larger than the limit
  std::signal(SIGPIPE, SIG_IGN);  // a write that fails says so, and the exit code is one of ours
  try {
    return run(argc, argv);
  } catch (const galvani::InternalError& error) {
    std::fprintf(stderr, "error: %s\nThis is a bug in Galvani; please report it with the command you ran.\n",
                 error.message.c_str());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: not enough memory; `galvani inspect` prints what a model needs\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\nThis is a bug in Galvani; please report it with the command you ran.\n",
                 error.what());
  }
  return galvani::cli::kNo;
}
