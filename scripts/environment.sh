# Sourced by the other scripts: finds Python, makes a virtual environment and installs the project into it.
# Sets ROOT. Everything is quiet unless something is really done, and nothing needs root.
#
# An environment is described by its stamp, a hash over the sources, the extras and what decides whether the hot
# modules get compiled. It is written last, so an interrupted install is simply done again.

ROOT="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
unset PYTHONPATH # what is installed is what runs, unless a script says otherwise

fail() {
    echo "headwater: $*" >&2
    exit 1
}

# With --help as the first argument, prints the comment at the head of the script, which is its usage, and ends.
help_if_asked() { # arguments of the script
    case "${1-}" in
        -h | --help)
            print_usage
            exit 0
            ;;
    esac
}

print_usage() { sed -n '2,/^[^#]/{ s/^# \{0,1\}//p }' "$0"; }

# Prints the first Python that is new enough; $PYTHON, if set, is the only candidate.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    local found
    found="$(command -v "${PYTHON:-python3}" >/dev/null && "${PYTHON:-python3}" --version 2>&1 || echo missing)"
    fail "Python 3.11 or newer is needed (${PYTHON:-python3} is $found). Install it, on Debian with" \
        "'apt install python3 python3-venv', or set PYTHON to one."
}

sources_hash() { # extras [lab]
    {
        echo "$ROOT" "$*" "${HEADWATER_PURE:-}" "${CC:-$(command -v cc gcc clang | head -n 1)}"
        (cd "$ROOT" && find src pyproject.toml setup.py ${2:+lab} -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' \
            -print0 | sort -z | xargs -0 sha256sum)
    } | sha256sum | cut -d ' ' -f 1
}

# Installs from a copy, so that a build leaves nothing in the project's folder.
install_project() { # environment extras [lab]
    local environment="$1" extras="$2" lab="${3:-}" copy log="$1/install.log" status=0
    copy="$(mktemp -d)"
    cp -r "$ROOT"/{src,pyproject.toml,setup.py,LICENSE} ${lab:+"$ROOT/lab"} "$copy"
    [ ! -e "$ROOT/README.md" ] || cp "$ROOT/README.md" "$copy"
    "$environment/bin/python" -m pip install --verbose --disable-pip-version-check \
        "headwater$extras @ file://$copy" ${lab:+"headwater-lab @ file://$copy/lab"} >"$log" 2>&1 || status=$?
    rm -rf "$copy"
    if [ "$status" -ne 0 ]; then
        tail -n 15 "$log" >&2
        fail "the installation failed; all of its output is in $log"
    fi
    # pip hides what a build says; the reason for not compiling is worth reading.
    sed -n 's/^ *headwater build: /headwater: /p' "$log" | sort -u >&2
}

is_current() { # environment stamp
    [ -x "$1/bin/python" ] && [ "$(cat "$1/stamp" 2>/dev/null)" = "$2" ]
}

make_environment() { # folder extras (such as "" or "[dev]") [lab]: with the lab too
    local environment="$ROOT/$1" python wanted
    wanted="$(sources_hash "${@:2}")"
    ! is_current "$environment" "$wanted" || return 0
    mkdir -p "$environment"
    exec 9>"$environment/lock"
    if command -v flock >/dev/null; then flock 9; fi
    if is_current "$environment" "$wanted"; then # another run has just done it
        exec 9>&-
        return 0
    fi
    rm -f "$environment/stamp"
    if ! "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
        python="$(find_python)"
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "$python cannot make virtual environments. On Debian: apt install python3-venv"
        echo "headwater: making $1 with $("$python" --version) ..." >&2
        "$python" -m venv "$environment" || fail "could not make a virtual environment in $environment"
    fi
    echo "headwater: installing into $1, compiling if possible; this takes a minute or two ..." >&2
    install_project "$environment" "${@:2}"
    tools_hash >"$environment/tools"
    echo "$wanted" >"$environment/stamp"
    exec 9>&-
}

tools_hash() { cat "$ROOT/pyproject.toml" "$ROOT/lab/pyproject.toml" | sha256sum; }

# For what only reads the sources: the same, but what is installed of the project itself may be old.
make_tools() { # folder extras [lab]
    [ -x "$ROOT/$1/bin/python" ] && [ "$(cat "$ROOT/$1/tools" 2>/dev/null)" = "$(tools_hash)" ] || make_environment "$@"
}
