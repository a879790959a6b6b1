"""Pages to look at: a run, a sweep, a pipeline or a task of the registry, as one HTML file that needs nothing else.

blocks              what a page is made of: values without a word of HTML
charts, setting_charts, lineage_chart   measurements, settings and lineage as what Plotly.js draws
prediction_charts, mistakes   where a model errs, from the predictions that its run has kept
setting_importance  which settings of a sweep mattered
run_facts, make_facts, difference_texts   what is recorded of a run, or sets two apart, as short lines of text
run_page, sweep_sections, task_page   from the registry to a page
rendering           from a page to HTML
"""
