"""tristream.parsers: model output in, message deltas out. Pure: stdlib only, no I/O, no clock, no random.

This file is the whole public API; start reading at `chat.py`.
"""
