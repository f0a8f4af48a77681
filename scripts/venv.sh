#!/bin/sh
# Make a virtual environment, or say which step is missing.
#
#   scripts/venv.sh make DIR     create DIR with a Python >= 3.11 ($PYTHON if set) and pip in it
#   scripts/venv.sh usable DIR   exit 0 when DIR works where it stands
#
# Only sh and Python are taken for granted: Debian splits venv's helper (ensurepip) from Python itself.
set -eu

say() { printf '%s\n' "$@" >&2; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# How this Python can get an environment with pip: through `ensurepip`, through its own `pip`, or not at all.
way() {
    for module in ensurepip pip; do
        if "$1" -c "import venv, $module" 2>/dev/null; then echo "$module"; return; fi
    done
}

# The first Python that can do it all, else the first that is new enough.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" && { command -v "$PYTHON"; return; }
        say "PYTHON=$PYTHON is not a Python of 3.11 or newer." "Next: name another one, or leave PYTHON unset."
        return 1
    fi
    fallback= found=$(python3 -V 2>/dev/null || true)
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        new_enough "$name" || continue
        if [ -n "$(way "$name")" ]; then command -v "$name"; return; fi
        fallback=${fallback:-$(command -v "$name")}
    done
    if [ -n "$fallback" ]; then echo "$fallback"; return; fi
    say "No Python of 3.11 or newer was found; python3 is ${found:-missing}." \
        "Next: install one, or name it: make PYTHON=/path/to/python3.12 ..."
    return 1
}

# The shebang lines in DIR/bin hold its path, so a copied or moved environment runs another tree's programs.
usable() {
    grep -qF "$(CDPATH='' cd -- "$1" 2>/dev/null && pwd -P)" "$1/pyvenv.cfg" 2>/dev/null \
        && "$1/bin/python" -c 'import pip' 2>/dev/null
}

make() {
    python=$(find_python)
    rm -rf "$1"
    case $(way "$python") in
        ensurepip)
            "$python" -m venv "$1" ;;
        pip)
            "$python" -m venv --without-pip "$1"
            "$python" -m pip --python "$1/bin/python" install -qq --ignore-installed pip ;;
        *)
            version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            say "$python cannot make a virtual environment: it has neither ensurepip nor pip." \
                "Debian and Ubuntu pack them apart from Python." \
                "Next: apt-get install python$version-venv   (or: make PYTHON=/path/to/another/python3 ...)"
            return 1 ;;
    esac
}

case "${1:-} ${2:+dir}" in
    "make dir") make "$2" ;;
    "usable dir") usable "$2" ;;
    *) say "usage: scripts/venv.sh make|usable DIR"; exit 2 ;;
esac
