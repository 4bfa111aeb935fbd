"""Devices, cores, precision and memory of the machine."""
