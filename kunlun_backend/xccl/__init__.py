"""Plugin ``kunlun-xccl``: communication between ranks."""
