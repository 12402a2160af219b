# Sourced by the scripts of this folder, each of which makes one table or figure of a paper, from corpus to Markdown:
#
#   scripts/tables/NAME.sh [--preset paper|small|smoke] [--seeds N…] [--jobs N] [--gpus-per-job N] [--only MODEL…]
#       [--slurm KEY=VALUE…] [--dry-run] [--format markdown|latex|csv] [--test bootstrap|randomization] [--out DIR]
#       [-- flags of fairseq-train…]
#
# `relumt grid --help` and `relumt table --help` explain these. What is there already is not made again. RUNS is the
# folder of all runs (runs); what else can be set is in scripts/common.sh. A run that fails leaves its cell empty; the
# script then exits with status 1.

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
    preset=paper printing=() failed=0
    local grid=() done_after=
    while (($# > 0)); do
        case $1 in
            --)
                grid+=(--flags "${@:2}")
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

# finished: a line for each cell of the table that has a finished run: dataset, model, the run's folder.
finished() {
    relumt grid "$table" --preset "$preset" --runs "$runs" --list | awk -F '\t' '$3 && !seen[$3]++'
}

# measure SCRIPT: time the table's models with benchmarks/SCRIPT, unless TABLE-DATASET.json is there.
measure() {
    local script=$1 dataset briefly=() of
    if [[ $preset == smoke ]]; then
        briefly=(--sample 1 --repeats 1)
        [[ $script != speed.py ]] || briefly+=(--steps 3)
    fi
    of=$(finished)
    while read -r dataset; do
        [[ -z $dataset || -e $runs/$table-$dataset.json ]] || "$python" "$root/benchmarks/$script" "$runs" "$dataset" \
            --models $(awk -v d="$dataset" '$1 == d {print $2}' <<<"$of") \
            --json "$runs/$table-$dataset.json" ${briefly[@]+"${briefly[@]}"} >&2
    done < <(cut -f1 <<<"$of" | sort -u)
}

# report SENTENCES: analyse the table's runs together, of one seed each, with maps of so many sentences to explore.
report() {
    local found
    mapfile -t found < <(finished | cut -f3)
    ((${#found[@]} == 0)) || [[ -e $runs/$table-$preset/report.html ]] ||
        relumt analyze "${found[@]}" --sentences "$1" --out "$runs/$table-$preset"
}

print_table() {
    relumt table "$table" --preset "$preset" --runs "$runs" ${printing[@]+"${printing[@]}"}
    exit "$failed"
}
