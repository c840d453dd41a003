"""`headwater pipeline submit kubernetes|yarn`: the files that run a pipeline on a cluster."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.options import with_options

if TYPE_CHECKING:
    from headwater.pipeline.submitting.plan import Files, Plan

submit = typer.Typer(
    name="submit", help="Run the pipeline on Kubernetes or YARN.", no_args_is_help=True, rich_markup_mode=None
)


@dataclass
class PlanOptions:
    """What is asked of any cluster."""

    lake: Annotated[str, typer.Option("--lake", metavar="URL", help="Object storage of the tables, s3://bucket/lake.")]
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of the pipeline in a TOML file, without secrets.")
    ] = None
    url: Annotated[list[str] | None, typer.Option("--url", help="REST of a node; repeat for several.")] = None
    name: Annotated[str, typer.Option("--name", help="What the cluster calls it.")] = "headwater-pipeline"
    executors: Annotated[int, typer.Option("--executors", help="Executors.")] = 2
    executor_cores: Annotated[int, typer.Option("--executor-cores", help="Cores of each.")] = 1
    executor_memory: Annotated[str, typer.Option("--executor-memory", help="Java memory of each.")] = "2g"
    driver_memory: Annotated[str, typer.Option("--driver-memory", help="Java memory of the driver.")] = "2g"
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeat for several.")
    ] = None
    out: Annotated[Path, typer.Option("--out", help="The folder into which files are written.")] = Path(
        "headwater-submit"
    )
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files and commands; write and run nothing.")] = (
        False
    )
    apply: Annotated[bool, typer.Option("--apply", help="Run the commands, too.")] = False

    def plan(self, command: str) -> Plan:
        from headwater.pipeline.submitting.plan import Plan, PlanError

        try:
            text = "" if self.config is None else self.config.read_text(encoding="utf-8")
        except OSError as error:
            fail(command, f"cannot read {self.config}: {error.strerror}.")
        pairs = [each.partition("=") for each in self.conf or ()]
        options = [word for url in self.url or () for word in ("--url", url)]
        try:
            return Plan(
                lake=self.lake,
                name=self.name,
                config=text,
                executors=self.executors,
                executor_cores=self.executor_cores,
                executor_memory=self.executor_memory,
                driver_memory=self.driver_memory,
                options=tuple(options),
                spark={key: value for key, _, value in pairs},
            )
        except PlanError as error:
            fail(command, f"{error}.")

    def carry_out(self, command: str, files: Files, commands: Sequence[Sequence[str]]) -> None:
        if self.dry_run:
            for name, text in files.items():
                print(f"# ---- {name}\n{text}", end="")
            print("# ---- commands")
        else:
            self.out.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                path = self.out / name
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if name.endswith(".sh") else 0o644)
        for words in commands:
            print(shlex.join(words), flush=True)
            if self.apply and not self.dry_run:
                self._run(command, words)

    def _run(self, command: str, words: Sequence[str]) -> None:
        try:
            status = subprocess.run(words, cwd=self.out, check=False).returncode
        except FileNotFoundError:
            fail(command, f"{words[0]} is not installed; run it in {self.out} where it is.")
        if status:
            fail(command, f"{words[0]} ended with status {status}.")


with_plan_options = with_options(PlanOptions, "of")


@submit.command()
@with_plan_options
def kubernetes(
    of: PlanOptions,
    image: Annotated[str, typer.Option("--image", help="Of driver and executors; a Dockerfile for it is written.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where it runs.")] = "default",
    secret: Annotated[
        str | None, typer.Option("--secret", help="A Secret whose entries are the environment: tokens, credentials.")
    ] = None,
) -> None:
    """A Deployment whose driver asks for executors: kubernetes.yaml, and a Dockerfile of the image."""
    from headwater.pipeline.submitting import kubernetes as files

    command = "pipeline submit kubernetes"
    plan, cluster = of.plan(command), files.Kubernetes(image, namespace, secret)
    of.carry_out(command, files.files(plan, cluster), files.commands(plan, cluster))


@submit.command()
@with_plan_options
def yarn(
    of: PlanOptions,
    queue: Annotated[str, typer.Option("--queue", help="Of YARN.")] = "default",
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="VARIABLE", help="Goes along from the environment of who submits; repeat."),
    ] = None,
) -> None:
    """A driver in a container of the cluster: submit.sh, and what it ships."""
    from headwater.pipeline.submitting import yarn as files

    command = "pipeline submit yarn"
    plan, cluster = of.plan(command), files.Yarn(queue, tuple(secret or ()))
    of.carry_out(command, files.files(plan, cluster), files.commands(plan, cluster))
