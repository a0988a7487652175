"""The fixed prompts: one token, short, long, code, several languages, chat."""

from __future__ import annotations

from typing import Any

_LIGHTHOUSE = (
    "The keeper of the lighthouse wrote in his book every evening. He wrote down the direction of the wind, the height "
    "of the waves, the ships that passed, and the hour at which he lit the lamp. When the fog came he rang the bell "
    "once every minute, and he wrote that down as well. In winter the boat from the village could not land for weeks, "
    "and he lived on dried fish, hard bread and the potatoes he had grown behind the tower. He did not mind being "
    "alone, because the birds came back every spring and nested on the rocks below, and he knew each pair by the mark "
    "he had painted on their legs. One night in March the lamp went out. He climbed the hundred and twelve steps with "
    "a can of oil in one hand and a candle in the other, and found that the wick had burned down to the metal. A ship "
    "was coming towards the rocks; he could see her green light and her red light at the same time, which meant that "
    "she was sailing straight at him. He cut a strip from his own shirt, soaked it in oil, and held the candle to it "
    "until it caught. The light was weak and yellow, but it turned, and the ship turned too. In the morning the keeper "
    "wrote a single line in his book:"
)

_TEXTS = {
    "short": "The capital of France is",
    "question": "How many legs does a spider have? Answer:",
    "list": "The planets of the solar system, in order from the sun, are Mercury,",
    "arithmetic": "2 + 2 = 4\n3 + 5 = 8\n10 + 7 =",
    "science": "Water boils at a lower temperature on a mountain because",
    "story": "Once upon a time, in a small village by the sea, there lived a girl who",
    "long": _LIGHTHOUSE,
    "long question": f"{_LIGHTHOUSE}\n\nQuestion: Why did the lamp go out?\nAnswer:",
    "python": 'def fibonacci(n: int) -> int:\n    """Return the n-th Fibonacci number."""\n',
    "c": "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "json": '{"name": "Ada Lovelace", "born": 1815, "field":',
    "french": "Bonjour, je m'appelle Marie et j'habite à",
    "german": "Die Hauptstadt von Deutschland ist",
    "spanish": "Había una vez un perro que",
    "chinese": "北京是中国的首都,",
    "russian": "Москва является столицей",
}

_CHATS: dict[str, list[dict[str, str]]] = {
    "chat": [{"role": "user", "content": "What is the capital of France?"}],
    "chat with system": [
        {"role": "system", "content": "You are a botanist. Answer in one sentence."},
        {"role": "user", "content": "Why are leaves green?"},
    ],
    "chat in turns": [
        {"role": "user", "content": "Name three primary colours."},
        {"role": "assistant", "content": "Red, yellow and blue."},
        {"role": "user", "content": "Which two of them make green?"},
    ],
}

SHARED_PREFIX = ("long", "long question")
"""Two prompts of which the second begins with the first."""


def prompts(tokenizer: Any) -> dict[str, list[int]]:
    """Twenty prompts as token ids, by name."""
    result = {"one token": tokenizer.encode("The")}
    result |= {name: tokenizer.encode(text) for name, text in _TEXTS.items()}
    for name, messages in _CHATS.items():
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        result[name] = tokenizer.encode(text)
    return result
