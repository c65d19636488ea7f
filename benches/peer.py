"""The peer of the speed benches: llama.cpp (the prebuilt `xllamacpp` wheel) on the same file.

Reads one JSON object a line from standard input and answers with one a line:
    {"prompt": [ids], "predict": n}  ->  {"prefill_tokens", "prefill_seconds", "decode_tokens", "decode_seconds"}
The first line it writes says that the model is loaded: {"loaded_seconds": s, "version": v}.
Its server listens on loopback only and is asked by this process alone.
"""

import json
import sys
import time
import urllib.request
from importlib.metadata import version

import xllamacpp


def main():
    path, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.warmup = True
    params.endpoint_metrics = False
    begun = time.monotonic()
    server = xllamacpp.Server(params)
    loaded = time.monotonic() - begun
    address = server.listening_address
    print(json.dumps({"loaded_seconds": loaded, "version": version("xllamacpp")}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        body = {
            "prompt": ask["prompt"],
            "n_predict": ask["predict"],
            "temperature": 0.0,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        request = urllib.request.Request(
            f"{address}/completion",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            timings = json.load(reply)["timings"]
        answer = {
            "prefill_tokens": timings["prompt_n"],
            "prefill_seconds": timings["prompt_ms"] / 1000.0,
            "decode_tokens": timings["predicted_n"],
            "decode_seconds": timings["predicted_ms"] / 1000.0,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
