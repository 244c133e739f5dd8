"""Results as text on a terminal and as JSON.

- `printing` the parts of reports and the one way to a stream, `progress` the bars
- `tables`, `changes` reports for people, and gauges for Prometheus
- `jsonable` for scripts, `rewrites` documents of rewrites, done or rehearsed
- `page` the HTML report, and the overview of many tables: what `templates` are filled with, its
  numbers and paths of pictures
"""
