# Each target is one script; the scripts say what they do and end in PASS, FAIL or COULD-NOT-ANSWER.
.PHONY: help demo test check ci clean
help:
	@echo 'make demo    install what is missing, build, fetch a small real model, generate text with it'
	@echo 'make test    install what is missing, build, run the tests'
	@echo 'make check   format, include direction and the other house rules'
	@echo 'make ci      everything the CI runs: tests, checks, sanitizers, fuzzing, install'
	@echo 'make clean   remove build/ and run/'
demo:
	@scripts/demo
test:
	@scripts/test
check:
	@scripts/check
ci:
	@.ci/run
clean:
	@scripts/clean
