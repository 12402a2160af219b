# Sourced by the scripts of this folder, each of which makes one table or figure of a paper, from corpus to Markdown:
#
#   scripts/tables/NAME.sh [--preset paper|small|smoke] [--seeds N…] [--jobs N] [--gpus-per-job N] [--only MODEL…]
#       [--slurm KEY=VALUE…] [--dry-run] [--format markdown|latex|csv] [--test bootstrap|randomization] [--out DIR]
#       [-- flags of fairseq-train…]
#
# `relumt grid --help` and `relumt table --help` explain these. What is there already is not made again. RUNS is the
# folder of all runs (runs); what else can be set is in scripts/common.sh. A run that fails leaves its cell empty; the
# script then exits with status 1. Where a run that is there was made otherwise, no table is printed; the status is 2.

source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

runs=${RUNS:-runs}

# make_table NAME ARGUMENTS…: make its runs and print it.
make_table() {
    make_runs "$@"
    print_table
}

# make_runs NAME ARGUMENTS…: train, translate and analyse; sets `table` and what the other functions need.
make_runs() {
    table=$1
    shift
    preset=paper printing=() flags=() failed=0 on_cluster=
    local grid=() done_after=
    while (($# > 0)); do
        case $1 in
            --)
                flags=("${@:2}")
                grid+=(--flags "${flags[@]}")
                break
                ;;
            --*=*)
                set -- "${1%%=*}" "${1#*=}" "${@:2}"
                ;;
            --preset | --format | --test | --out)
                require_value "$@"
                if [[ $1 == --preset ]]; then preset=$2; else printing+=("$1" "$2"); fi
                shift 2
                ;;
            --runs | --root)
                echo "relumt: error: $1 is not of the scripts; set RUNS" >&2
                exit 2
                ;;
            *)
                [[ $1 != --slurm ]] || on_cluster=1
                [[ $1 != --dry-run && $1 != --list && $1 != --help && $1 != -h ]] || done_after=1
                grid+=("$1")
                shift
                ;;
        esac
    done
    relumt grid "$table" --preset "$preset" --runs "$runs" --root "$root" ${grid[@]+"${grid[@]}"} || failed=$?
    # 1 says that runs failed: the others are worth a table. 2 is the user's error.
    if ((failed > 1)) || [[ -n $done_after ]]; then
        exit "$failed"
    fi
}

require_value() {
    if (($# < 2)); then
        echo "relumt: error: $1 needs a value" >&2
        exit 2
    fi
}

# here WHAT: whether this machine is where the runs are made; says of a cluster that WHAT is not made from outside it.
here() {
    [[ -n $on_cluster ]] || return 0
    echo "relumt: no $1 with --slurm, where it would be of this machine; type the command on a node without it" >&2
    return 1
}

# finished: a line for each cell of the table that has a finished run: dataset, model, the run's folder.
finished() {
    relumt grid "$table" --preset "$preset" --runs "$runs" --list | awk -F '\t' '$3 && !seen[$3]++'
}

# measure SCRIPT: time the table's finished models with benchmarks/SCRIPT, relative to the first one, which has to be
# among them; TABLE-DATASET.json has the figures, and is made anew for other models, checkpoints or kinds of devices.
measure() {
    local script=$1 dataset baseline models briefly=() cells
    here speeds || return 0
    if [[ $preset == smoke ]]; then
        briefly=(--sample 1 --repeats 1)
        [[ $script != train_decode_speed.py ]] || briefly+=(--steps 3)
    fi
    cells=$(relumt grid "$table" --preset "$preset" --runs "$runs" --list)
    for dataset in $(cut -f1 <<<"$cells" | sort -u); do
        baseline=$(awk -F '\t' -v d="$dataset" '$1 == d {print $2; exit}' <<<"$cells")
        mapfile -t models < <(awk -F '\t' -v d="$dataset" '$1 == d && $3 && !seen[$2]++ {print $2}' <<<"$cells")
        if [[ ${models[0]:-} != "$baseline" ]]; then
            echo "relumt: no speeds on $dataset: they are relative to $baseline, which has no finished run" >&2
            continue
        fi
        "$python" "$root/benchmarks/$script" "$runs" "$dataset" --models "${models[@]}" \
            --json "$runs/$table-$dataset.json" ${briefly[@]+"${briefly[@]}"} >&2 || failed=1
    done
}

# report SENTENCES: analyse the table's runs together, of one seed each, with maps of so many sentences to explore.
report() {
    local found out=$runs/$table-$preset
    here report || return 0
    mapfile -t found < <(finished | cut -f3)
    ((${#found[@]} > 0)) || return 0
    if [[ ! -e $out/report.html ]] || ! cmp -s "$out/runs" <(sha256sum "${found[@]/%//run.json}"); then
        relumt analyze "${found[@]}" --sentences "$1" --out "$out"
        sha256sum "${found[@]/%//run.json}" >"$out/runs"
    fi
}

print_table() {
    relumt table "$table" --preset "$preset" --runs "$runs" ${printing[@]+"${printing[@]}"}
    exit "$failed"
}
