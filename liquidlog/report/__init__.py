"""Results as text on a terminal and as JSON.

- `printing` the parts of reports and the one way to a stream; `progress` the bars
- `changes`, `tables` what each command prints, documents of rewrites, gauges for Prometheus
- `jsonable` values as JSON
- `page` the HTML report, and the overview of many tables: what `templates` are filled with, its
  numbers and paths of pictures
"""
