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
names=() codes=() times=()

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
    names+=("$name") codes+=("$code") times+=($((SECONDS - begin)))
    [ "$code" -eq 0 ] || printf '=== %s failed: exit %d\n' "$name" "$code"
    return "$code"
}

# Its output to a file and to the eye: timeout takes programs, not functions.
to_file=(bash -c 'set -o pipefail; "${@:2}" | tee "$1"' to_file)

finish() {
    local failed=0 i
    printf '\n%-22s %8s %6s\n' step result s
    for i in "${!names[@]}"; do
        local result=ok
        [ "${codes[$i]}" -eq 0 ] || { result="exit ${codes[$i]}"; failed=1; }
        printf '%-22s %8s %6d\n' "${names[$i]}" "$result" "${times[$i]}"
    done
    {
        printf '{"backend": "%s", "seconds": %d, "pass": %s, "steps": [' "$backend" "$SECONDS" \
            "$([ $failed -eq 0 ] && echo true || echo false)"
        for i in "${!names[@]}"; do
            [ "$i" -eq 0 ] || printf ', '
            printf '{"name": "%s", "exit": %d, "seconds": %d}' "${names[$i]}" "${codes[$i]}" \
                "${times[$i]}"
        done
        printf ']'
        for name in devices selfcheck bench; do
            # A command that failed half-way leaves no JSON.
            case $(head -c 1 "$out/$name.json" 2>/dev/null) in
                '{') printf ', "%s": ' "$name"; cat "$out/$name.json" ;;
            esac
        done
        printf '}\n'
    } >"$out/check.json"
    printf '\n%s in %d s; %s\n' "$([ $failed -eq 0 ] && echo passed || echo FAILED)" "$SECONDS" \
        "$out/check.json"
    exit $failed
}

rm -f "$out"/{devices,selfcheck,bench,check}.json
options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKVLAB_GUI=OFF -DKVLAB_TESTS=OFF)
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
if [ "$backend" = cuda ] && command -v compute-sanitizer >/dev/null; then
    step compute-sanitizer 90 compute-sanitizer --error-exitcode 9 "$cli" generate \
        --backend cuda --prompt-tokens 40 --samples 2 --max-tokens 6 --ignore-eos
else
    printf '\n=== compute-sanitizer: %s\n' \
        "$([ "$backend" = cuda ] && echo "not installed, left out" || echo "needs a GPU, left out")"
fi
step bench 150 "${to_file[@]}" "$out/bench.json" "$cli" bench --backend "$backend" $quick --json
finish
