"""The vendor's operator contract: as data, on CPU torch (``sim``), and bound to the wheels (``xpu``)."""
