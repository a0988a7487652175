"""Plugin ``kunlun-kernels``: the attention backend and operators on the vendor's kernels."""
