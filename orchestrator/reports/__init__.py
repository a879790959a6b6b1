"""Reports on runs, sweeps, pipelines and tasks: pages in one HTML file or served by the board, and text of commands.

blocks                  parts of a page: frozen values without a word of HTML
charts                  what Plotly.js draws
run_facts               what is recorded of a run, as values and as short lines of text
run_differences         all in which two runs differ
lineage_trees           what a model was made of, and what was made of it
ranked_groups           groups of a leaderboard as the terminal shows them
run_page, task_page, predictions   from the registry to a page, or to the curves as PNG, SVG or PDF
rendering               from a page to HTML
board                   the pages behind addresses of this machine, and a live list of the newest runs
"""
