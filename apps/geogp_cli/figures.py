"""The command `geogp figures`: parse, call, print."""

import json
from dataclasses import replace

from geogp.commands.run_requests import FiguresRequest
from geogp_cli import console
from geogp_cli.place import Json
from geogp_cli.setting_options import takes


@takes(FiguresRequest)
def figures(request: FiguresRequest, as_json: Json = False) -> None:
    """Draw figures for papers: kernel, basis, interval widths, spread and reliability."""
    from geogp.runs.run_names import find_run

    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.paper_figures import make_figures

    with console.working() as listener:
        result = make_figures(request, listener)
    if as_json:
        files = [str(path) for path in result.files]
        output = {"files": files, "captions": result.captions, "left_out": result.left_out}
        print(json.dumps(output))
        return
    left_out = (f"{name} is left out: {reason}." for name, reason in result.left_out.items())
    console.tell(*result.files, *left_out)
