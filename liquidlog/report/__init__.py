"""Results as text on a terminal and as JSON.

- `layout` parts of reports for people: `tables`, `plans`, `changes`, `advice`, `fleets`
- `printing` the one way to a stream, `progress` the bars
- `jsonable` for scripts, `rewrites` documents of rewrites, done or rehearsed
- `openmetrics` for Prometheus
- `page` the HTML report, and the overview of many tables: what `templates` are filled with, its
  numbers and paths of pictures
"""
