"""Results as text on a terminal and as JSON.

- `advice` advised layouts
- `tables`, `plans`, `changes` reports for people, of `layout`'s parts
- `policies` settings and who decided them
- `printing` the one way to a stream
- `readers` what is said of predicates
- `jsonable` for scripts
- `rewrites` documents of rewrites, done or rehearsed
- `openmetrics` for Prometheus
- `workloads` what was imported
- `page` the HTML report, and the overview of many tables: what `templates` are filled with;
  `figures` numbers for people, `shapes` paths of SVG
- `fleets` surveys of many tables, and runs over them
- `progress` the bars
"""
