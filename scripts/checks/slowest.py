"""The slowest steps of a Ninja build: slowest.py BUILD_FOLDER [COUNT]. Of use while the tree must build on two cores."""
import os
import sys


def steps(path):
    """{output: seconds} of the last time each output was built."""
    latest = {}
    with open(path, encoding="utf-8") as log:
        for line in log:
            fields = line.rstrip("\n").split("\t")
            if len(fields) >= 4:
                latest[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return latest


def main():
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    found = steps(os.path.join(folder, ".ninja_log"))
    print(f"{len(found)} steps, {sum(found.values()):.0f} s of work in {folder}; the slowest:")
    for output, seconds in sorted(found.items(), key=lambda item: -item[1])[:count]:
        print(f"  {seconds:6.1f} s  {output}")


if __name__ == "__main__":
    main()
