"""Plugins for the Kunlun XPU. Each folder is one plugin and is useful without the others."""
