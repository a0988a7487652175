"""An offline engine, as a user's script starts one; prints what it generated and which processes ran what."""

from __future__ import annotations

import json
import sys


def main() -> None:
    import sglang

    from kunhook import manifest

    request = json.loads(sys.argv[1])
    engine = sglang.Engine(**request["engine"])
    try:
        answers = engine.generate(
            input_ids=request["prompts"],
            sampling_params={"temperature": 0, "max_new_tokens": request["tokens"]},
        )
        processes = [manifest.to_builtins(process) for process in manifest.read()]
    finally:
        engine.shutdown()
    print(json.dumps({"tokens": [answer["output_ids"] for answer in answers], "processes": processes}))


# SGLang starts its processes with spawn, which imports this file again.
if __name__ == "__main__":
    main()
