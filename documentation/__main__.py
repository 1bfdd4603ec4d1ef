"""`python -m documentation` brings every generated part of docs/ up to date; `--check` says what is not."""

import argparse
import sys

from documentation.pages import ROOT, generated_files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m documentation", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if a file is outdated"
    )
    check_only = parser.parse_args().check
    outdated = [
        (path, text)
        for path, text in generated_files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in outdated:
        if not check_only:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'is outdated' if check_only else 'written'}")
    return 1 if check_only and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
