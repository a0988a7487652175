"""The small library the Kunlun plugins stand on: drivers of the card and of the software device."""
