"""The rooms with a door to SGLang. Nothing outside this package imports sglang to connect things."""
