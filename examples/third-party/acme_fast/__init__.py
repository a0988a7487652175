"""A third party's additions to the Kunlun device."""
