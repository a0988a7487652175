"""Plugin ``kunlun-device``: find the Kunlun, name it to SGLang, prepare the process."""
