"""The whole registry as pages in a browser of this machine: it reads, and never writes.

run_rows        rows of the list of runs, a window of them at a time
comparing_page  runs side by side: scores, curves over one another, and all that differs between two
app             addresses, and what answers to each
"""
