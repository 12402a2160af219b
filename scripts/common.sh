# Sourced by the other scripts: the Python to use, the relumt command, and the settings from the environment.
#
#   RUNS          folder of all runs (runs)
#   SEED          random seed, part of the run's folder (1)
#   DATA_BIN      data-bin of the dataset (data-bin/DATASET)
#   CONFIGS       folder of datasets/ and models/ (the checkout's configs)
#   PRECISION     fp32, fp16 or bf16 for training (fp16 on a GPU, fp32 on a CPU)
#   ACCEPT_MIXED  1: go on with a run that was begun in another environment, and have it recorded
#   PYTHON        the Python that has relumt's requirements (the checkout's .venv, else python3)
#
# A script ends with status 2 where what was asked for cannot be, and with 1 where it was tried and failed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[[ -n ${PYTHON:-} || -x $python ]] || python=python3
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

# -P: a folder named fairseq_cli or relumt where the user stands must not take the real one's place.
relumt() {
    "$python" -P -m relumt.cli "$@"
}

require_names() {
    if (($# < 2)); then
        echo "relumt: error: usage: scripts/$(basename "$0") DATASET MODEL [fairseq flags…]" >&2
        exit 2
    fi
}

# run_record STEP DATASET MODEL [fairseq flags…]
run_record() {
    local step=$1
    shift
    local settings=(--runs "${RUNS:-runs}" --seed "${SEED:-1}" --configs "${CONFIGS:-$root/configs}")
    [[ -z ${DATA_BIN:-} ]] || settings+=(--data-bin "$DATA_BIN")
    [[ -z ${PRECISION:-} ]] || settings+=(--precision "$PRECISION")
    [[ ${ONE_BY_ONE:-} != 1 ]] || settings+=(--one-by-one)
    [[ ${ACCEPT_MIXED:-} != 1 ]] || settings+=(--accept-mixed)
    relumt run-record "$step" "${settings[@]}" "$@"
}

# plan_step STEP DATASET MODEL [fairseq flags…]: hold the run, and set `log` and `arguments` to what fairseq is to be
# run with. Where the step is done already, the script ends here. What was never started is not held, so that nothing
# is left where a later step is refused.
plan_step() {
    require_names "${@:2}"
    local folder
    folder=$(run_record folder "$2" "$3")
    [[ $1 != start && ! -e $folder/run.json ]] || hold_run "$folder"
    read_plan "$@"
    ((${#arguments[@]} > 0)) || exit 0
}

# read_plan STEP DATASET MODEL [fairseq flags…]: set `log` and `arguments`, to nothing where the step has nothing to run.
read_plan() {
    local plan
    plan=$(run_record "$@")
    arguments=()
    [[ -n $plan ]] || return 0
    mapfile -t arguments <<<"$plan"
    log=${arguments[0]}
    arguments=("${arguments[@]:1}")
}

# hold_named DATASET MODEL [fairseq flags…]: hold the run of these names.
hold_named() {
    require_names "$@"
    local folder
    folder=$(run_record folder "$1" "$2")
    hold_run "$folder"
}

# hold_run FOLDER: until this script and what it started have ended, no other may work on the run. A script that is
# started by one that holds it has it.
hold_run() {
    [[ ${RELUMT_HOLDS:-} != "$1" ]] || return 0
    mkdir -p "$1"
    exec {run_lock}>"$1/.lock"
    if [[ ${RELUMT_WAITS:-} == 1 ]] && ! flock --nonblock "$run_lock"; then
        echo "relumt: $1: another process works on this run; waiting for it" >&2
        flock "$run_lock"
    elif ! flock --timeout 2 "$run_lock"; then
        echo "relumt: error: $1: another process works on this run; wait for it, or stop it" >&2
        exit 2
    fi
    export RELUMT_HOLDS=$1
}
