"""Results as text on a terminal and as JSON.

- `advice` advised layouts
- `tables`, `plans`, `changes` reports for people, of `layout`'s parts
- `policies` settings and who decided them
- `printing` the one way to a stream
- `readers` what is said of predicates
- `jsonable` for scripts
- `rewrites` documents of rewrites, done or rehearsed
- `openmetrics` for Prometheus
- `ticks` runs over many tables
- `workloads` what was imported
- `page`, `shapes` the HTML report, section by section: `page_answer`, `page_readings`,
  `page_maps`, `page_past`, `page_advice`, `page_details`, of `page_parts`
- `fleets`, `fleet_page` surveys of many tables, `style`, `fleet_style` the frames of pages
- `progress` the bars
"""
