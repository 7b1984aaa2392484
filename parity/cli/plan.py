"""`parity plan`: the plan as a file, to look at, keep, or carry to another host."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.hunting import say_skipped
from parity.cli.options import PlanOptions, plan_options
from parity.cli.output import emit_json, say
from parity.messages import message


@click.command()
@plan_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Plan file to write. [default: stdout]")
def plan(output: Path | None, options: PlanOptions) -> None:
    """Write down what a run would do, without running it.

    The plan holds the prompts as token ids, every sampling parameter, and every engine setting of every
    arm. Run it here or on another host with `parity run --plan FILE`.
    """
    from parity.cli.config import chosen_hosts
    from parity.cli.planning import plan_request
    from parity.errors import writing
    from parity.pipeline.directory import write_plan
    from parity.pipeline.placing import load_adapters, placed
    from parity.pipeline.planning import make_plan

    request = plan_request(options)
    hosts = chosen_hosts(request.backends, options.where)
    made = placed(make_plan(request, load_adapters(hosts)), hosts)
    say_skipped(made)
    if output is None:
        emit_json(made.to_json())
        return
    with writing(output, message("cli.name_another_file", "name another file with -o")):
        write_plan(output, made)
    longest = max(len(request.prompt_token_ids) for request in made.requests)
    say(
        message(
            "cli.prompts_up_tokens",
            "{output}: {count} prompts of up to {longest} tokens, {expected_completions} "
            "completions for each of {arms}",
            output=str(output),
            count=len(made.requests),
            longest=longest,
            expected_completions=made.expected_completions,
            arms=[arm.name for arm in made.arms],
        )
    )
