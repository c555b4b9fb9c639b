#!/usr/bin/env bash
# Print the first Python that can run the embedded Triton: 3.11 or 3.12 with its libpython and with venv.
# Otherwise say on stderr what is missing and which package brings it, and exit 1.
# A Python given as argument is tried alone.
set -euo pipefail

fail() {
    printf 'make setup: %s\n' "$@" >&2
    exit 1
}

container="Elsewhere use a container: NVIDIA's Triton image with tristream installed in its Python (README, \"Your own Triton\")."

[ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] ||
    fail "the embedded Triton runs on Linux x86-64; this is $(uname -s) on $(uname -m)." "$container"

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo none)
case "$glibc" in
    "glibc "*)
        lowest=$(printf '%s\n' 2.35 "${glibc#glibc }" | sort -V | head -n 1)
        [ "$lowest" = 2.35 ] || fail "glibc 2.35 or newer is needed (Debian 12, Ubuntu 22.04); this is $glibc." "$container"
        ;;
    *) fail "glibc 2.35 or newer is needed (Debian 12, Ubuntu 22.04); this system has another C library." "$container" ;;
esac

# Prints "ok PATH" or "no REASON".
probe='
import importlib.util, os, sys, sysconfig
version = "%d.%d" % sys.version_info[:2]
name = "libpython%s.so.1.0" % version
folders = [sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "LIBPL")]
if version not in ("3.11", "3.12"):
    print("no it is Python", version)
elif not any(os.path.exists(os.path.join(folder, name)) for folder in folders):
    print("no", name, "is missing: apt-get install libpython%s" % version, "(pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared)")
elif importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
    print("no venv is missing: apt-get install python%s-venv" % version)
else:
    print("ok", sys.executable)
'

tried=()
if [ $# -gt 0 ] && [ -n "$1" ]; then
    candidates=("$1")
else
    candidates=()
    for name in python3.11 python3.12 python3; do
        while IFS= read -r path; do candidates+=("$path"); done < <(type -ap "$name" || true)
    done
fi
for path in ${candidates[@]+"${candidates[@]}"}; do
    # A shim of a version manager may be on PATH without a Python behind it; it fails here and is passed over.
    answer=$("$path" -c "$probe" 2>/dev/null || echo "no it does not run")
    case "$answer" in
        "ok "*)
            echo "${answer#ok }"
            exit 0
            ;;
        *) tried+=("  $path: ${answer#no }") ;;
    esac
done
fail "no Python 3.11 or 3.12 with its libpython was found. Tried:" ${tried[@]+"${tried[@]}"} \
    "Install one: Debian 12 \`apt-get install python3.11 python3.11-venv libpython3.11\`," \
    "Ubuntu 24.04 \`apt-get install python3.12 python3.12-venv libpython3.12\`, or name one: make setup PYTHON=/path/to/python"
