#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# One check of the CUDA engine on a machine with a GPU, nvcc and CMake 3.25, but neither Qt nor a
# network: build (no window, no tests), devices, selfcheck, a short decode under compute-sanitizer
# where there is one, bench. At most 9 minutes in all; prints as it goes; a table at the end and
# $OUT/check.json (OUT defaults to the build folder). Exit 1 when a step failed.
#
#   tests/gpu/check.sh [--backend cuda|simt|cpu] [--headers DIR] [--build DIR] [--quick]
#
# --headers: a folder with nlohmann/ (JSON for Modern C++, 3.11) and CLI/ (CLI11, 2.x), both
# header-only; default build/headers, else what CMake finds. On a machine that has the packages:
#   mkdir -p build/headers && cp -r /usr/include/nlohmann /usr/include/CLI build/headers/
# simt and cpu try the script itself where there is no GPU; --quick takes the bench's smallest sizes,
# and so does simt always: the others would take it hours.
#
# A compute-sanitizer that cannot work here (another driver's, a GPU it does not know, no end in its
# time) is left out and says why; what it finds, and a program that fails under it, fail the check.
# tests/gpu/check_test runs this script over stand-ins.
set -u

backend=cuda
headers=build/headers
build=build/gpu-check
quick=
while [ $# -gt 0 ]; do
    case $1 in
        --backend) backend=$2; shift 2 ;;
        --headers) headers=$2; shift 2 ;;
        --build) build=$2; shift 2 ;;
        --quick) quick=--quick; shift ;;
        *) echo "check.sh: unknown option $1; see its first lines" >&2; exit 2 ;;
    esac
done
case $backend in
    cuda | simt | cpu) ;;
    *) echo "check.sh: --backend wants cuda, simt or cpu, not $backend" >&2; exit 2 ;;
esac

[ "$backend" = simt ] && quick=--quick

cd "$(dirname "$0")/../.." || exit 2
mkdir -p "$build" || exit 2
out=${OUT:-$build}
mkdir -p "$out" || exit 2
limit=540 # seconds for everything
SECONDS=0
names=() codes=() times=() reasons=() # a reason: why a step is left out

# note NAME EXIT SECONDS [WHY]: a line of the table; WHY when the step is left out.
note() {
    names+=("$1") codes+=("$2") times+=("$3") reasons+=("${4:-}")
    if [ -n "${4:-}" ]; then
        printf '\n=== %s left out: %s\n' "$1" "$4"
    elif [ "$2" -ne 0 ]; then
        printf '=== %s failed: exit %d\n' "$1" "$2"
    fi
}

# step NAME MOST_SECONDS COMMAND…: runs it, within what is left of the limit.
step() {
    local name=$1 most=$2 begin=$SECONDS code=0
    shift 2
    local left=$((limit - SECONDS))
    [ "$most" -gt "$left" ] && most=$left
    printf '\n=== %s (%d s so far, at most %d s)\n' "$name" "$SECONDS" "$most"
    if [ "$most" -lt 1 ]; then
        code=124
        echo "no time left"
    else
        timeout --kill-after=5 "$most" "$@" || code=$?
    fi
    note "$name" "$code" $((SECONDS - begin))
    return "$code"
}

# Its output to a file and to the eye: timeout takes programs, not functions.
to_file=(bash -c 'set -o pipefail; "${@:2}" | tee "$1"' to_file)

# sanitize MOST_SECONDS COMMAND…: the command has run well without it.
sanitize() {
    local log=$out/sanitizer.txt most=$1 begin=$SECONDS code=0 why found
    shift
    local left=$((limit - SECONDS))
    [ "$most" -gt "$left" ] && most=$left
    if [ "$most" -lt 1 ]; then
        note compute-sanitizer 0 0 "no time left"
        return
    fi
    printf '\n=== compute-sanitizer (%d s so far, at most %d s)\n' "$SECONDS" "$most"
    timeout --kill-after=5 "$most" compute-sanitizer --error-exitcode 9 "$@" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    local took=$((SECONDS - begin))
    # What it says of itself, not of our kernels.
    why=$(grep -Eim1 'internal sanitizer error|not supported|unable to find|injection|no attachable|before first instrumented|insufficient permission|failed to (load|initialize|attach)' "$log")
    found=$(grep -Eim1 'invalid __|misaligned|out of bounds|uninitialized|hazard|barrier error|program hit|malloc/free error|leaked' "$log")
    if [ "$code" -eq 0 ] && grep -q 'ERROR SUMMARY: 0 errors' "$log"; then
        why=
    elif [ -z "$found" ] && [ -n "$why" ]; then
        code=0 why="it cannot work here: ${why#=========}"
    elif [ -n "$found" ] || grep -q 'ERROR SUMMARY: ' "$log"; then
        # Also when its time was over after the first finding, and when the program fails under it.
        [ "$code" -ne 0 ] || code=9
        why=
    elif [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        code=0 why="it did not end within $most s"
    else
        why="it gives no summary (exit $code): $(tail -n 1 "$log")" code=0
    fi
    note compute-sanitizer "$code" "$took" "$why"
}

# A string as JSON; no line breaks come in.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"
}

finish() {
    local failed=0 i
    printf '\n%-22s %8s %6s\n' step result s
    for i in "${!names[@]}"; do
        local result=ok
        [ -z "${reasons[$i]}" ] || result="left out"
        [ "${codes[$i]}" -eq 0 ] || { result="exit ${codes[$i]}"; failed=1; }
        printf '%-22s %8s %6d\n' "${names[$i]}" "$result" "${times[$i]}"
    done
    {
        printf '{"backend": "%s", "seconds": %d, "pass": %s, "steps": [' "$backend" "$SECONDS" \
            "$([ $failed -eq 0 ] && echo true || echo false)"
        for i in "${!names[@]}"; do
            [ "$i" -eq 0 ] || printf ', '
            printf '{"name": "%s", "exit": %d, "seconds": %d, "left_out": %s}' "${names[$i]}" \
                "${codes[$i]}" "${times[$i]}" \
                "$([ -n "${reasons[$i]}" ] && quoted "${reasons[$i]}" || echo null)"
        done
        printf ']'
        for name in devices selfcheck bench; do
            # A command that was ended leaves no JSON, or half of it.
            [ "$(head -c 1 "$out/$name.json" 2>/dev/null)$(tail -c 2 "$out/$name.json" \
                2>/dev/null)" = '{}' ] || continue
            printf ', "%s": ' "$name"
            cat "$out/$name.json"
        done
        printf '}\n'
    } >"$out/check.json"
    printf '\n%s in %d s; %s\n' "$([ $failed -eq 0 ] && echo passed || echo FAILED)" "$SECONDS" \
        "$out/check.json"
    exit $failed
}

rm -f "$out"/{devices,selfcheck,bench,check}.json
# Another compiler's new warning must not cost the run.
options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKVLAB_GUI=OFF -DKVLAB_TESTS=OFF
    -DKVLAB_WERROR=OFF)
[ -d "$headers/nlohmann" ] && options+=(-DKVLAB_JSON_INCLUDE="$(realpath "$headers")")
[ -d "$headers/CLI" ] && options+=(-DKVLAB_CLI11_INCLUDE="$(realpath "$headers")")
targets=(kvlab_cli)
if [ "$backend" = cuda ]; then
    # Only for the GPU at hand ("9.0" is 90), by name: CMake refuses `native` where it finds none.
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        sed -n '1s/[^0-9]//gp')
    options+=(-DKVLAB_CUDA_ARCHITECTURES="${KVLAB_CUDA_ARCHITECTURES:-${capability:-90}}")
    targets+=(kvlab_cuda)
fi
cli=$build/app/cli/kvlab-cli

step configure 60 cmake "${options[@]}" || finish
step build 300 cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${targets[@]}" || finish
step devices 30 "${to_file[@]}" "$out/devices.json" "$cli" devices --json
step selfcheck 120 "$cli" selfcheck --backend "$backend" --seed "${SEED:-$RANDOM}"
selfcheck_code=${codes[-1]}
if [ "$selfcheck_code" -eq 0 ] || [ "$selfcheck_code" -eq 1 ]; then
    step "selfcheck --json" 120 sh -c '"$0" selfcheck --backend "$1" --json >"$2"' \
        "$cli" "$backend" "$out/selfcheck.json"
fi
decode=("$cli" generate --backend "$backend" --prompt-tokens 40 --samples 2 --max-tokens 6 --ignore-eos)
step "short decode" 60 "${decode[@]}"
if [ "$backend" != cuda ]; then
    note compute-sanitizer 0 0 "needs a GPU"
elif ! command -v compute-sanitizer >/dev/null; then
    note compute-sanitizer 0 0 "not installed"
elif [ "${codes[-1]}" -ne 0 ]; then
    note compute-sanitizer 0 0 "what it would watch fails without it"
else
    sanitize 90 "${decode[@]}"
fi
step bench 150 "${to_file[@]}" "$out/bench.json" "$cli" bench --backend "$backend" $quick --json
finish
