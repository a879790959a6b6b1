"""Reports on runs, sweeps, pipelines and tasks: pages in one HTML file or served by the board, and text of commands.

page_blocks             parts of a page: frozen values without a word of HTML
charts                  what Plotly.js draws, and curves as PNG, SVG or PDF
pages, mistake_blocks   from the registry to a page of a run, of several, of a task; what a model gets wrong
rendering, board        from a page to HTML; pages behind addresses of this machine, with a live list of the newest runs
run_facts               what is recorded of a run, as values and as short lines of text
run_differences         all in which two runs differ
ranked_groups           groups of a leaderboard as the terminal shows them
tracker_exports         runs as TensorBoard, MLflow and W&B keep them
"""
