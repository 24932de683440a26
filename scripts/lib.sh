#!/usr/bin/env bash
# What every script here shares: a run folder, a time limit, stages, and one last line that gives the verdict.
# Source it, then call `begin NAME [SECONDS]`, and end through `pass`, `fail` or `cannot`.
#
#   PASS ...              exit 0   the question was answered: yes
#   FAIL ...              exit 1   the question was answered: no
#   COULD-NOT-ANSWER ...  exit 2   it was not answered: time limit, signal, no network, a missing tool
#
# A script that runs inside another one writes below its parent's run folder and prints its verdict indented, so that
# the outermost script alone decides the last line.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 LC_ALL=C.UTF-8
# Where fetched models live; the tests look there too, and skip with a reason when a model is absent.
export GALVANI_CACHE=${GALVANI_CACHE:-${HOME:-/root}/.cache/galvani}
# A clone that belongs to another user (a CI's, say) is still ours to list.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$ROOT

VERDICT="" REASON="" CHILD="" WATCHDOG="" RUN_DIR="" DEPTH=${GALVANI_SCRIPT_DEPTH:-0}
STAGES=() STAGE_RESULTS=() STAGE_SECONDS=() STAGE_NOTES=()

begin() {  # NAME [SECONDS]
  local parent=${GALVANI_RUN_PARENT:-$ROOT/run}
  RUN_DIR=$parent/$1-$(date +%Y%m%d-%H%M%S)-$$
  mkdir -p "$RUN_DIR"
  export GALVANI_RUN_PARENT=$RUN_DIR GALVANI_SCRIPT_DEPTH=$((DEPTH + 1))
  # The outermost script's limit governs; an inner one ends with it.
  TIME_LIMIT=$((DEPTH > 0 ? 0 : ${GALVANI_TIME_LIMIT:-${2:-0}}))
  if ((TIME_LIMIT > 0)); then
    # Closed descriptors: a reader of this script's output must not wait for the watchdog.
    setsid bash -c 'sleep "$1"; kill -USR1 "$2"' watchdog "$TIME_LIMIT" $$ </dev/null >/dev/null 2>&1 &
    WATCHDOG=$!  # started before the traps below exist, so that it does not inherit them
  fi
  trap finish EXIT
  trap 'on_signal SIGINT' INT
  trap 'on_signal SIGTERM' TERM
  trap 'on_signal SIGHUP' HUP
  trap 'VERDICT=COULD-NOT-ANSWER REASON="the time limit of $TIME_LIMIT s was reached (GALVANI_TIME_LIMIT=SECONDS raises it); what is built and fetched stays for the next run; logs in $RUN_DIR"; exit 2' USR1
}

say() { printf '%s\n' "$*"; }
pass() { VERDICT=PASS REASON=$*; exit 0; }
fail() { VERDICT=FAIL REASON=$*; exit 1; }
cannot() { VERDICT=COULD-NOT-ANSWER REASON=$*; exit 2; }
on_signal() { VERDICT=COULD-NOT-ANSWER REASON="stopped by $1; logs in $RUN_DIR"; exit 2; }

finish() {
  local code=$?
  trap '' INT TERM HUP USR1
  trap - EXIT
  set +e
  stop_child
  [[ -n $WATCHDOG ]] && kill -TERM "$WATCHDOG" "-$WATCHDOG" 2>/dev/null
  if [[ -z $VERDICT ]]; then
    VERDICT=COULD-NOT-ANSWER REASON="the script itself stopped unexpectedly (exit code $code); logs in $RUN_DIR"
  fi
  case $VERDICT in PASS) code=0 ;; FAIL) code=1 ;; *) code=2 ;; esac
  say "$VERDICT $REASON" >"$RUN_DIR/verdict"
  if ((DEPTH > 0)); then say "  $VERDICT $REASON"; else say "$VERDICT $REASON"; fi
  exit "$code"
}

# Children run in the background in their own process group: bash runs a trap only when no foreground command is
# running, and a stopped script must take everything it started with it. Inner scripts get less grace than outer ones.
stop_child() {
  [[ -n $CHILD ]] || return 0
  local grace=$((DEPTH > 3 ? 1 : 8 - 2 * DEPTH)) tick
  kill -TERM -- "-$CHILD" 2>/dev/null
  for ((tick = 0; tick < grace * 10; ++tick)); do
    kill -0 -- "-$CHILD" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL -- "-$CHILD" 2>/dev/null
  CHILD=""
}

await() {  # PID: the exit code of a background child
  CHILD=$1
  local code=0
  wait "$CHILD" || code=$?
  CHILD=""
  return "$code"
}

quiet() {  # LOG COMMAND...: output goes to the log only
  local log=$RUN_DIR/$1.log
  shift
  setsid "$@" </dev/null >"$log" 2>&1 &
  await $!
}

live() {  # LOG COMMAND...: output goes to the log and, as it comes, to the caller
  local log=$RUN_DIR/$1.log
  shift
  setsid bash -c 'set -o pipefail; log=$1; shift; "$@" 2>&1 | tee "$log"' live "$log" "$@" </dev/null &
  await $!
}

inner() {  # SCRIPT [ARGUMENT...]: runs scripts/SCRIPT; unless it passes, this script ends with its verdict and reason
  local name=$1 code=0
  shift
  if [[ $name == setup ]] && ((EUID != 0)); then
    scripts/setup "$@" || code=$?  # sudo may have to ask for a password, and only the foreground owns the terminal
  else
    live "$name" "scripts/$name" "$@" || code=$?
  fi
  ((code != 0)) || return 0
  local reason
  reason=$(cat "$RUN_DIR/$name"-*/verdict 2>/dev/null | tail -n 1 | sed -E 's/^[A-Z-]+ //' || true)
  reason="$name: ${reason:-no verdict, exit code $code; logs in $RUN_DIR}"
  if ((code == 1)); then fail "$reason"; else cannot "$reason"; fi
}

find_nvcc() {  # the CUDA compiler to use: $CUDACXX, PATH, /usr/local/cuda, or what scripts/cuda-13.0 fetched; fails if none
  local nvcc version
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$GALVANI_CACHE/cuda-13.0/bin/nvcc"; do
    [[ -n $nvcc && -x $nvcc ]] || continue
    nvcc=$(readlink -f "$nvcc")  # it finds its own parts by where it lies
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p')
    [[ -n $version && $(printf '%s\n' 12.4 "$version" | sort -V | head -n 1) == 12.4 ]] || continue
    printf '%s\n' "$nvcc"
    return 0
  done
  return 1
}

show_tail() {  # LOG LINES: what a reader needs of a failed step
  say "---- last lines of $RUN_DIR/$1.log"
  tail -n "$2" "$RUN_DIR/$1.log" | sed 's/^/  | /'
}

# A stage whose need (a download, say) may be missing through no fault of the code: where it could not answer it counts
# as not run, and table and verdict say so.
stage_if_possible() {
  local if_possible=1  # seen by stage, not by the programs it starts
  stage "$@"
}

stage() {  # NAME COMMAND...: runs it quietly, times it, remembers the result for stage_table; never ends the script
  local name=$1 start=$SECONDS code=0 result note=""
  shift
  printf '== %-22s ' "$name"
  quiet "$name" "$@" || code=$?
  case $code in 0) result=ok ;; 2) [[ ${if_possible:-} ]] && result=not-run || result=unanswered ;; *) result=failed ;; esac
  note=$(grep -E '^ *(PASS|FAIL|COULD-NOT-ANSWER) ' "$RUN_DIR/$name.log" | tail -n 1 | sed -E 's/^ *[A-Z-]+ //' || true)
  STAGES+=("$name") STAGE_RESULTS+=("$result") STAGE_SECONDS+=($((SECONDS - start))) STAGE_NOTES+=("$note")
  say "$result, $((SECONDS - start)) s${note:+: $note}"
  [[ $result == ok ]] || show_tail "$name" 40
}

stage_table() {
  local i
  printf '\n%-22s %-10s %7s  %s\n' stage result seconds note
  for i in "${!STAGES[@]}"; do
    printf '%-22s %-10s %7d  %s\n' "${STAGES[i]}" "${STAGE_RESULTS[i]}" "${STAGE_SECONDS[i]}" "${STAGE_NOTES[i]}"
  done
}

stages_verdict() {  # SUMMARY: ends the script according to the stages
  local i failed=() unanswered=() not_run=()
  for i in "${!STAGES[@]}"; do
    case ${STAGE_RESULTS[i]} in failed) failed+=("${STAGES[i]}") ;; unanswered) unanswered+=("${STAGES[i]}") ;; not-run) not_run+=("${STAGES[i]}") ;; esac
  done
  ((${#STAGES[@]} > 0)) || fail "no stage ran"
  ((${#failed[@]} == 0)) || fail "${failed[*]} failed; logs in $RUN_DIR"
  ((${#unanswered[@]} == 0)) || cannot "${unanswered[*]} could not be answered; logs in $RUN_DIR"
  ((${#not_run[@]} < ${#STAGES[@]})) || cannot "no stage could run; logs in $RUN_DIR"
  pass "$1${not_run[*]:+; NOT RUN, all or in part: ${not_run[*]} (logs in $RUN_DIR)}"
}
