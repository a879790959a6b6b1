"""Pages on runs, sweeps, pipelines and tasks: written as one HTML file that needs nothing else, or served by the board.

blocks                  parts of a page: frozen values without a word of HTML
charts                  what Plotly.js draws
run_facts               what is recorded of a run, as values and as short lines of text
run_differences         all in which two runs differ
ranked_groups           groups of a leaderboard as the terminal shows them
run_page, task_page, predictions   from the registry to a page, or to the curves as PNG, SVG or PDF
rendering               from a page to HTML
board                   the pages behind addresses of this machine, and a live list of the newest runs
"""
