"""The ACME accelerator, which does not exist: its device node is a file and its memory is the host's."""
