"""`bucketize profile`: where the time of a call goes, kernel by kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.command.run import check_options, ready
from bucketize.cli.echo import echo
from bucketize.cli.model import load_inputs
from bucketize.cli.table import milliseconds, records, table, write_csv
from bucketize.progress import progress_bar
from bucketize.table import Format, json_text, pairs, shortened

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.executable import Executable

    Profiles = list[tuple[parameter.Sizes, pd.DataFrame]]

NAME = 26  # characters of a name: what the other columns leave of 80
BEYOND = "* beyond the roof: out of a cache, not memory, or by fewer products (Winograd)"
GROUP = 7  # of those, for the column of groups, where there are any


@click.command()
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@parameter.input_option
@parameter.log_option
@parameter.threads_option
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="Timed runs.")
@parameter.saved_options
@parameter.written_option("--csv", help="Write all columns as CSV.")
@parameter.written_option("--trace", help="Write a time line for chrome://tracing and Perfetto.")
@parameter.json_option
def profile(
    model: str,
    bounds: list[parameter.Bound],
    csv: Path | None,
    trace: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time each kernel of MODEL, beside what the machine could do.

    A row is a kernel, by the names of the ONNX nodes that it computes ("+2": and two more). Times
    are medians, "iqr" the distance between their quartiles, "model" what the kernel's cost model
    says, in us. GFLOP/s counts matrix products and convolutions; GB/s counts operands and results
    once each. "roof" is what was attained of min(peak GFLOP/s, intensity x peak GB/s), both
    measured here in a second; it may exceed 100 %, which is marked: what lies in a cache comes
    faster than from memory. Kernels of a "group" run in strips: their times are parts of it.

    MODEL may be a program that `bucketize compile` saved. Such a file is code: load only what you
    trust, or --rebuild it.

    \b
    Examples:
      bucketize profile zoo:mlp --at N=1
      bucketize profile net.onnx -d log --log trials.csv --at N=4 --trace t.json
      bucketize profile net.bkt --at N=4,H=224,W=224 --csv layers.csv
    """
    check_options(model)
    given = load_inputs(options["inputs"])
    loaded, exe, points = ready(model, bounds, given, options)
    profiles: Profiles = []
    distinct = {frozenset(sizes.items()): sizes for sizes in points}  # whatever their order
    for sizes in distinct.values():
        arrays = loaded.inputs(sizes, given)
        in_order = [arrays[name] for name in exe.inputs]  # a name may be one of profile's own
        with progress_bar(f"profiling {pairs(sizes)}".strip()) as tell:
            frame = exe.profile(*in_order, repetitions=options["repeat"], progress=tell)
        profiles.append((sizes, frame))
    write(profiles, csv, trace)
    report(exe, profiles, as_json)


def write(profiles: Profiles, csv: Path | None, trace: Path | None) -> None:
    """Write the files that are asked for."""
    import pandas as pd

    from bucketize.analysis import chrome_trace

    titled = {pairs(sizes): frame for sizes, frame in profiles}
    if csv is not None:
        every = pd.concat([f.assign(sizes=s) for s, f in titled.items()], ignore_index=True)
        order = ["sizes", *(c for c in every.columns if c != "sizes")]
        write_csv(every[order], csv)
    if trace is not None:
        trace.write_text(json_text(chrome_trace(titled)))


def report(exe: Executable, profiles: Profiles, as_json: bool) -> None:
    """Print where the time went."""
    if as_json:
        echo(json_text([facts(exe, *each) for each in profiles], indent=2))
        return
    for sizes, frame in profiles:
        echo(headline(exe, sizes, frame))
        echo(shown(frame))
    from bucketize.program.program import threads_text

    roof = profiles[0][1].attrs["roofline"]
    echo(f"roof with {threads_text(exe.program.threads)}, measured: {roof}")


def facts(exe: Executable, sizes: parameter.Sizes, frame: pd.DataFrame) -> dict[str, Any]:
    """A profile for scripts."""
    roof = frame.attrs["roofline"]
    return {
        "sizes": sizes,
        "clone": exe.explain(**sizes).clone,
        "threads": exe.program.threads,
        "whole_s": frame.attrs["whole_s"],
        "whole_iqr_s": frame.attrs["whole_iqr_s"],
        "predicted_s": frame.attrs["predicted_s"],
        "roofline": {"gflops": roof.gflops, "gbytes_s": roof.gbytes_s, "ridge": roof.ridge},
        "machine": asdict(frame.attrs["machine"]),
        "kernels": records(frame),
    }


def headline(exe: Executable, sizes: parameter.Sizes, frame: pd.DataFrame) -> str:
    """What the rows are of."""
    clone = exe.explain(**sizes).clone
    whole, model = (milliseconds(frame.attrs[name]) for name in ("whole_s", "predicted_s"))
    at = f"{pairs(sizes)}: " if sizes else ""
    return f"{at}{clone}, {whole} a call ({model} by the model), {len(frame) - 1} kernels"


def shown(frame: pd.DataFrame) -> str:
    """The rows in 80 columns."""
    beyond = any(map(is_beyond, frame["roofline"]))
    formats: dict[str, Format] = {
        "group": number("{:.0f}"),
        "time us": number("{:.1f}"),
        "model": number("{:.1f}"),
        "iqr": number("{:.1f}"),
        "share": number("{:.1%}"),
        "GFLOP/s": number("{:.1f}", least=0.05),  # 0 of what does not count
        "GB/s": number("{:.1f}"),
        "roof": roof_format(beyond),
    }
    grouped = frame["group"].notna().any()
    columns = {
        "name": labels(frame, NAME - GROUP if grouped else NAME),
        **({"group": frame["group"]} if grouped else {}),
        "time us": 1e6 * frame["time_s"],
        "model": 1e6 * frame["predicted_s"],
        "iqr": 1e6 * frame["iqr_s"],
        "share": frame["share"],
        "GFLOP/s": frame["gflops"],
        "GB/s": frame["gbytes_s"],
        "roof": frame["roofline"],
    }
    rows = zip(*columns.values(), strict=True)
    text = table([dict(zip(columns, row, strict=True)) for row in rows], formats)
    return f"{text}\n{BEYOND}" if beyond else text


def is_beyond(share: float | None) -> bool:
    """Whether this share of the roof is shown as more than all of it."""
    return share is not None and round(share, 2) > 1


def roof_format(beyond: bool) -> Format:
    """A share of the roof, with a sign on what goes beyond it, and room for it on the others."""
    shown = number("{:.0%}")
    return lambda share: shown(share) + ("*" if is_beyond(share) else " " * beyond)


def labels(frame: pd.DataFrame, width: int = NAME) -> list[str]:
    """The names, with the kernel where a node has several: its padding may be one of its own."""
    rows = list(zip(frame["name"], frame["kernel"], strict=True))
    often = Counter(name.split("+")[0] for name, _ in rows)
    kernels = [kernel if often[name.split("+")[0]] > 1 else "" for name, kernel in rows]
    return [shortened(name, width, k) for (name, _), k in zip(rows, kernels, strict=True)]


def number(form: str, least: float = 0.0) -> Format:
    """A number, or a dash where there is none or it is less."""
    return lambda value: form.format(value) if value is not None and value >= least else "-"
