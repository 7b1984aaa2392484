"""What leaves the machine or is printed of a run: the terminal's summary, bug reports, pages, files for CI.

    with Store.open(path) as store:
        text = write_report(store, "20261121-042615", "md", "vllm")

`parity.report.write` is the one entry for every format (docs/report.md); `parity.report.formats` has a module for each.
"""
