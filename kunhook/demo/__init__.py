"""The demonstration: a real model on the software Kunlun."""
