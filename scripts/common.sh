# Sourced by the other scripts. Chooses the Python to run, defines the relumt command, and reads these variables:
#
#   RUNS           folder of all runs (default: runs)
#   SEED           random seed, part of the run's folder (default: 1)
#   DATA_BIN       data-bin of the dataset (default: data-bin/DATASET)
#   CONFIGS        folder with datasets/ and models.toml (default: the checkout's configs)
#   PRECISION      fp32, fp16 or bf16 for training (default: fp16 on a GPU, fp32 on a CPU)
#   FORCE          1: continue a run that was started with other settings, and record the change
#   RELUMT_KERNELS which implementation of attention is used (default: auto; docs/kernels.md)
#   PYTHON         a Python with relumt's requirements (default: the checkout's .venv, else python3)
#
# Exit status: 2 if the request is invalid, so that nothing was started; 1 if something was started and failed.

unset CDPATH # with it, cd may choose another folder, and prints its path
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[[ -n ${PYTHON:-} || -x $python ]] || python=python3
# A path is made absolute, because some scripts change the folder and start others.
[[ $python != */* || $python == /* ]] || export PYTHON=$PWD/$python python=$PWD/$python
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

# -P: ignore folders named fairseq_cli or relumt in the current directory.
relumt() {
    "$python" -P -m relumt.cli "$@"
}

# fail STATUS MESSAGE
fail() {
    echo "relumt: error: $2" >&2
    exit "$1"
}

# begin "$@": the start of a script. If an argument is -h or --help, print the script's usage and exit, with the options
# of the relumt command `help_of` if that is set.
begin() {
    local argument
    for argument in "$@"; do
        [[ $argument != -h && $argument != --help ]] || print_usage
    done
    local find='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "fairseq"))))'
    "$python" -P -c "$find" 2>/dev/null ||
        fail 2 "$python lacks relumt's requirements; run make install, or set PYTHON to a Python that has them"
}

# print_usage: print the comment that the script starts with, and its options or variables; exit.
print_usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    echo
    if [[ -n ${help_of:-} ]]; then
        relumt "$help_of" --help
    else
        sed -n '/^#   [A-Z]/s/^# //p' "$root/scripts/common.sh"
    fi
    exit 0
}

# require_names DATASET MODEL [fairseq flags…]
require_names() {
    local found=${*@Q}
    (($# >= 2)) ||
        fail 2 "usage: scripts/$(basename "$0") DATASET MODEL [fairseq flags…]; found ${found:-nothing}; see --help"
}

# refuse_arguments "$@"
refuse_arguments() {
    (($# == 0)) || fail 2 "$(basename "$0") takes no arguments, found '$1'; see --help"
}

# is_on VARIABLE: return whether a variable is 1; values other than 1, 0 and nothing are refused
is_on() {
    [[ ${!1:-} == [01] || -z ${!1:-} ]] || fail 2 "$1 is ${!1@Q}; set it to 1 or 0"
    [[ ${!1:-} == 1 ]]
}

# run_stages STAGE… -- DATASET MODEL [fairseq flags…]: go through --train, --evaluate and --analyze in place of this shell
run_stages() {
    local stages=()
    while [[ $1 != -- ]]; do
        stages+=("$1")
        shift
    done
    shift
    begin "$@"
    require_names "$@"
    local settings=("--runs=${RUNS:-runs}" "--seed=${SEED:-1}" "--configs=${CONFIGS:-$root/configs}")
    [[ -z ${DATA_BIN:-} ]] || settings+=("--data-bin=$DATA_BIN")
    [[ -z ${PRECISION:-} ]] || settings+=("--precision=$PRECISION")
    ! is_on FORCE || settings+=(--force)
    exec "$python" -P -m relumt.cli run "${stages[@]}" "${settings[@]}" -- "$@"
}
