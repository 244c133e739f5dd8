"""Results as text on a terminal and as JSON.

- `console` what each command prints, documents of rewrites, and gauges for Prometheus
- `printing` the parts of reports, JSON, and the one way to a stream; `progress` the bars
- `page` the HTML report, and the overview of many tables: what `templates` are filled with, its
  numbers and paths of pictures
"""
