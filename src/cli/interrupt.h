#pragma once
/// Ctrl-C (SIGINT) and SIGTERM as a flag, so that a run ends between steps and leaves no half-written file.

namespace galvani::cli {

/// From now on the first of these signals only sets the flag; a second one ends the process with exit code 1.
void catch_interrupts();
/// catch_interrupts() for its lifetime; the signals then do what they did before.
class CatchInterrupts {
 public:
  CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;
  ~CatchInterrupts();

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
};
bool interrupted();
/// Clears the flag; a signal counts as the first again.
void reset_interrupt();
/// While true, a signal ends the process with exit code 0 at once: a prompt that waits for input has nothing to lose.
void interrupt_leaves(bool leaves);

}  // namespace galvani::cli
