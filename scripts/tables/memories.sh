# Sourced by the scripts of [RF] §3: trains, scores and measures feed-forward layers as memories, for every number of
# slots and seed. What is there already is not made again.
#
#   DATASET  a folder in configs/datasets (multi30k_de_en_small)
#   SLOTS    numbers of memory slots ("32 128 512 2048 3072 4096")
#   SEEDS    random seeds ("1")
# and the settings of scripts/common.sh, which lists them.

source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

export RUNS=${RUNS:-runs}
dataset=${DATASET:-multi30k_de_en_small}

make_memories() {
    local slots seed model folder
    for slots in ${SLOTS:-32 128 512 2048 3072 4096}; do
        for seed in ${SEEDS:-1}; do
            for model in ffn_relu ffn_softmax ffn_softmax_ln; do
                folder=$(RUNS=$RUNS/slots-$slots SEED=$seed run_record folder "$dataset" "$model")
                echo "relumt: $folder" >&2
                RUNS=$RUNS/slots-$slots SEED=$seed "$root/scripts/run.sh" "$dataset" "$model" "$@" \
                    --encoder-ffn-embed-dim "$slots" --decoder-ffn-embed-dim "$slots" >&2
                [[ -e $folder/analysis.json ]] || relumt analyze "$folder" --out "$folder" --numbers-only
            done
        done
    done
}
