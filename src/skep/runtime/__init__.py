"""Runs a task as a child process: its folder, limits, output, end; and what is known of the machine."""
