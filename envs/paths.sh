# Where an environment lives, and the digest that names it. Sourced by envs/install and envs/run,
# which set `envs` to this directory.

checkout=${envs%/envs}
root=${POSTTRAIN_ENVS:-${XDG_CACHE_HOME:-${HOME:?set POSTTRAIN_ENVS or HOME}/.cache}/posttrain/envs}

# The digest covers what decides an environment's content and nothing of another environment: its
# part of pixi.lock, its wheels, and what is laid beside them.
locate() {
    case $1 in
        control | train | rollout) also= ;;
        cpu | dev) also=$envs/torch-cuda.txt ;;
        *) echo "envs: no such environment: $1; known: control cpu dev train rollout" >&2; exit 2 ;;
    esac
    digest=$({
        awk -v name="  $1:" '
            /^environments:/ { inside = 1; next }
            /^[^ ]/          { inside = 0 }
            /^  [^ ]/        { mine = (inside && $0 == name); seen += mine }
            seen && !mine    { exit }
            mine             { print }' "$checkout/pixi.lock"
        cat "$envs/$1.txt" $also "$envs"/site/*.py
    } | sha256sum)
    digest=${digest%% *}
    directory=$root/$(printf %.16s "$digest")/$1
    marker=$directory/environment
}
