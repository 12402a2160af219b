# Sourced by the other scripts. Chooses the Python to run, defines the relumt command, and reads these variables:
#
#   RUNS          folder of all runs (default: runs)
#   SEED          random seed, part of the run's folder (default: 1)
#   DATA_BIN      data-bin of the dataset (default: data-bin/DATASET)
#   CONFIGS       folder with datasets/ and models/ (default: the checkout's configs)
#   PRECISION     fp32, fp16 or bf16 for training (default: fp16 on a GPU, fp32 on a CPU)
#   ACCEPT_MIXED  1: continue a run that was started in another environment, and record the change
#   PYTHON        a Python with relumt's requirements (default: the checkout's .venv, else python3)
#
# Exit status: 2 if the request is invalid, so that nothing was started; 1 if something was started and failed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[[ -n ${PYTHON:-} || -x $python ]] || python=python3
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

# -P: ignore folders named fairseq_cli or relumt in the current directory.
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

# start_step STEP DATASET MODEL [fairseq flags…]: lock the run, and set `log` and `arguments` for the fairseq command.
# Exits the script if the step is done already. A run that was never trained is not locked by later steps, because
# locking would create its folder.
start_step() {
    require_names "${@:2}"
    local folder
    folder=$(run_record folder "$2" "$3")
    [[ $1 != start-training && ! -e $folder/run.json ]] || lock_run "$folder"
    read_command "$@"
    ((${#arguments[@]} > 0)) || exit 0
}

# read_command STEP DATASET MODEL [fairseq flags…]: set `log` and `arguments`; `arguments` is empty if there is nothing
# to run.
read_command() {
    local output
    output=$(run_record "$@")
    arguments=()
    [[ -n $output ]] || return 0
    mapfile -t arguments <<<"$output"
    log=${arguments[0]}
    arguments=("${arguments[@]:1}")
}

# lock_named_run DATASET MODEL [fairseq flags…]
lock_named_run() {
    require_names "$@"
    local folder
    folder=$(run_record folder "$1" "$2")
    lock_run "$folder"
}

# lock_run FOLDER: keep other processes off the run until this script and its children have ended. A script started by
# one that has the lock shares it (RELUMT_HOLDS). With RELUMT_WAITS=1, wait for the lock instead of failing.
lock_run() {
    [[ ${RELUMT_HOLDS:-} != "$1" ]] || return 0
    mkdir -p "$1"
    exec {run_lock}>"$1/.lock"
    if [[ ${RELUMT_WAITS:-} == 1 ]] && ! flock --nonblock "$run_lock"; then
        echo "relumt: $1: another process is working on this run; waiting for it" >&2
        flock "$run_lock"
    elif ! flock --timeout 2 "$run_lock"; then
        echo "relumt: error: $1: another process is working on this run; wait for it or stop it" >&2
        exit 2
    fi
    export RELUMT_HOLDS=$1
}
