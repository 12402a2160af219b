# Sourced by the scripts of this folder, each of which makes one table or figure of a paper, from corpus to Markdown:
#
#   scripts/tables/NAME.sh [--preset paper|small|smoke] [--seeds N…] [--jobs N] [--gpus-per-job N] [--only MODEL…]
#       [--slurm KEY=VALUE…] [--dry-run] [--format markdown|latex|csv] [--test bootstrap|randomization] [--out DIR]
#       [-- flags of fairseq-train…]
#
# `relumt grid --help` and `relumt table --help` explain these. What is there already is not made again. RUNS is the
# folder of all runs (runs); what else can be set is in scripts/common.sh.

source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

runs=${RUNS:-runs}

# make_table NAME ARGUMENTS…: make its runs and print it.
make_table() {
    make_runs "$@"
    print_table
}

# make_runs NAME ARGUMENTS…: train, translate and analyse; sets `table`, `preset` and what print_table needs.
make_runs() {
    table=$1
    shift
    preset=paper printing=() dry=
    local grid=()
    while (($# > 0)); do
        case $1 in
            --preset | --format | --test | --out)
                require_value "$@"
                if [[ $1 == --preset ]]; then preset=$2; else printing+=("$1" "$2"); fi
                shift 2
                ;;
            --)
                grid+=(--flags "${@:2}")
                break
                ;;
            *)
                [[ $1 != --dry-run ]] || dry=1
                grid+=("$1")
                shift
                ;;
        esac
    done
    relumt grid "$table" --preset "$preset" --runs "$runs" --root "$root" ${grid[@]+"${grid[@]}"}
    [[ -z $dry ]] || exit 0
}

require_value() {
    if (($# < 2)); then
        echo "relumt: error: $1 needs a value" >&2
        exit 2
    fi
}

# measure SCRIPT FILE: time the models of the table with benchmarks/SCRIPT, unless FILE-DATASET.json is there.
measure() {
    local script=$1 file=$2 of dataset briefly=()
    if [[ $preset == smoke ]]; then
        briefly=(--sample 1 --repeats 1)
        [[ $script != speed.py ]] || briefly+=(--steps 3)
    fi
    of=$(relumt grid "$table" --preset "$preset" --list)
    while read -r dataset; do
        [[ -e $runs/$file-$dataset.json ]] || "$python" "$root/benchmarks/$script" "$runs" "$dataset" \
            --models $(awk -v d="$dataset" '$1 == d && !seen[$2]++ {print $2}' <<<"$of") \
            --json "$runs/$file-$dataset.json" ${briefly[@]+"${briefly[@]}"} >&2
    done < <(cut -f1 <<<"$of" | sort -u)
}

# report SENTENCES: analyse the table's runs of one seed together, with maps of so many sentences to explore.
report() {
    local found=() dataset model runs_of_model
    while read -r dataset model; do
        runs_of_model=("$runs/$dataset/$model"/*/)
        found+=("${runs_of_model[0]%/}")
    done < <(relumt grid "$table" --preset "$preset" --list)
    [[ -e $runs/$table-$preset/report.html ]] ||
        relumt analyze "${found[@]}" --sentences "$1" --out "$runs/$table-$preset"
}

print_table() {
    relumt table "$table" --preset "$preset" --runs "$runs" ${printing[@]+"${printing[@]}"}
}
