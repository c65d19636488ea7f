"""The peer of the speed benches: llama.cpp (the prebuilt `xllamacpp` wheel) on the same file.

    python peer.py MODEL THREADS SLOTS CONTEXT

Reads one JSON object a line from standard input and answers with one a line:
    {"prompts": [[ids], ...], "predict": n}  ->  {"wall": s, "requests": [{"prompt_n", "prompt_seconds",
    "predicted_n", "predicted_seconds"}, ...]}
    {"logprobs": [ids]}  ->  {"logprobs": [of each id but the first, null where it is not told]}
The prompts of a line are asked for at the same time. The first line it writes says that the model is
loaded: {"loaded_seconds": s, "version": v}. Its server listens on loopback only and is asked by this
process alone.
"""

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import xllamacpp


def main():
    path, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:5])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = slots
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.warmup = True
    params.endpoint_metrics = False
    begun = time.monotonic()
    server = xllamacpp.Server(params)
    loaded = time.monotonic() - begun
    address = server.listening_address
    print(json.dumps({"loaded_seconds": loaded, "version": version("xllamacpp")}), flush=True)

    def post(body):
        request = urllib.request.Request(
            f"{address}/completion",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)

    def complete(prompt, predict):
        body = {
            "prompt": prompt,
            "n_predict": predict,
            "temperature": 0.0,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        timings = post(body)["timings"]
        return {
            "prompt_n": timings["prompt_n"],
            "prompt_seconds": timings["prompt_ms"] / 1000.0,
            "predicted_n": timings["predicted_n"],
            "predicted_seconds": timings["predicted_ms"] / 1000.0,
        }

    def logprob(before, following):
        """Of one id behind others, as the next token's distribution has it."""
        for count in (500, 1_000_000):
            body = {
                "prompt": before,
                "n_predict": 1,
                "temperature": 0.0,
                "cache_prompt": True,
                "n_probs": count,
            }
            # A token that ends inside a character is not told.
            for told in post(body).get("completion_probabilities") or []:
                for entry in told["top_logprobs"]:
                    if entry["id"] == following:
                        return entry["logprob"]
        return None

    with ThreadPoolExecutor(max_workers=slots) as pool:
        for line in sys.stdin:
            ask = json.loads(line)
            if ids := ask.get("logprobs"):
                told = [logprob(ids[:at], ids[at]) for at in range(1, len(ids))]
                print(json.dumps({"logprobs": told}), flush=True)
                continue
            begun = time.monotonic()
            asked = [pool.submit(complete, prompt, ask["predict"]) for prompt in ask["prompts"]]
            answers = [future.result() for future in asked]
            wall = time.monotonic() - begun
            print(json.dumps({"wall": wall, "requests": answers}), flush=True)


if __name__ == "__main__":
    main()
