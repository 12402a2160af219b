# Sourced by the items: benchmarks/gpu/ITEM.sh BUNDLE OUT [--tiny]. Prepares a machine that has PyTorch but not relumt's
# other requirements, and runs steps within a time budget.
#
#   BUNDLE   what pack.sh made, or a folder whose data-bin/ has the data-bins, if PYTHON has relumt's requirements
#   OUT      gets report.md, log.txt and what the item names; an earlier report there is replaced
#   --tiny   check the item on a CPU: everything at a size at which the numbers mean nothing
#
# PYTHON is the machine's Python (default: python3).

export PYTHON=${PYTHON:-python3}
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

# start TITLE SECONDS "$@": read the arguments, unpack the bundle, and begin the report; the item takes at most SECONDS
start() {
    local title=$1 seconds=$2
    shift 2
    (($# == 2 || $# == 3)) && [[ $1 != -* && ${3:---tiny} == --tiny ]] ||
        fail 2 "usage: $0 BUNDLE OUT [--tiny]"
    tiny=${3:+1}
    end=$((SECONDS + seconds))
    bundle=$(cd "$1" 2>/dev/null && pwd) || fail 2 "$1: no such folder; make it with benchmarks/gpu/pack.sh"
    out=$(mkdir -p "$2" && cd "$2" && pwd) || fail 2 "$2: cannot be created; name another folder"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work" # not the checkout: the scripts must work from anywhere
    if compgen -G "$bundle/wheels/*.whl" >/dev/null; then # else the Python has what relumt needs
        "$python" -m pip install -q --no-index --no-deps --no-compile --target site "$bundle"/wheels/*.whl ||
            fail 1 "$python cannot install the wheels of $bundle; run benchmarks/gpu/pack.sh with its version of Python"
    fi
    export PYTHONPATH=$work/site:$PYTHONPATH PYTHONWARNINGS=ignore
    mkdir data-bin
    ! compgen -G "$bundle/data-bin/*" >/dev/null || ln -s "$bundle"/data-bin/* data-bin/
    [[ -z $tiny ]] || "$root/data_prep/smoke.sh" 2>/dev/null # a generated corpus
    if [[ -z $tiny ]]; then
        "$python" -P -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
            fail 2 "$title needs a GPU, but torch sees none; give --tiny to check the item on a CPU"
    fi
    {
        printf '# %s\n\n' "$title"
        [[ -z $tiny ]] || echo 'Checked with --tiny on a CPU: **the numbers mean nothing.**'
        echo "Commit $(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown), $(machine)"
    } >"$out/report.md"
    : >"$out/log.txt"
}

machine() {
    "$python" -P - <<'PYTHON'
import platform, torch
try:
    import triton
    version = triton.__version__
except ImportError:
    version = "none"
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print(f"{name}, torch {torch.__version__}, Triton {version}, Python {platform.python_version()}")
PYTHON
}

# step TITLE COMMAND…: run a command until the item's time is up. Its stdout is a section of the report, its stderr goes to
# the log. A step that fails is reported there, and the item goes on; it returns whether the step succeeded.
step() {
    local title=$1 status=0 start=$SECONDS
    shift
    printf '\n## %s\n\n    %s\n\n' "$title" "${*//$'\n'/ }" >>"$out/report.md"
    echo "== $title: $*" >>"$out/log.txt"
    local left=$((end - SECONDS))
    if ((left <= 0)); then
        echo '**Not started: the time was up.**' >>"$out/report.md"
        return 1
    fi
    timeout --kill-after=5 "$left" "$@" >>"$out/report.md" 2>>"$out/log.txt" || status=$?
    if ((status)); then
        printf '\n**Ended with status %s.** The log ends with:\n\n```\n' "$status"
        tail -n 15 "$out/log.txt" | cut -c 1-300
        printf '```\n'
    fi >>"$out/report.md"
    printf '\n(%s seconds)\n' "$((SECONDS - start))" >>"$out/report.md"
    echo "$title: $((SECONDS - start)) s, status $status" >&2
    return "$status"
}
